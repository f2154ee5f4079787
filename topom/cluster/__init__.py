"""The state of the cluster as one value, and the one writer that changes that value (**epochs**).

May import: reasons, errors, store.

:mod:`~topom.cluster.state` has all that topom remembers. A state never changes: each change makes a new one.
:mod:`~topom.cluster.ledger` stores the new state, and the events of the change in the same write.

To change

- what an operator may do to groups, servers and slots: :mod:`~topom.cluster.topology`, pure functions;
- what is remembered: a field in :mod:`~topom.cluster.state`, and its document in :mod:`~topom.cluster.records`, which
  reads it, and :mod:`~topom.cluster.changed_records`, which writes it. What topom alone keeps of slots, groups or
  servers is such a field by id. It is no field of the slot table, for proxies get that;
- the rules for every state that is stored: :mod:`~topom.cluster.rules`;
- which events a change has: :mod:`~topom.cluster.event_finding`; the names of events: :mod:`~topom.cluster.events`;
  where events go once they are stored: :mod:`~topom.cluster.event_sinks`; the sinks are in :mod:`topom.term` or
  :mod:`topom.api`;
- what cancelling, skipping and retrying do: :mod:`~topom.cluster.cancelling`;
- what is stored of fences: :mod:`~topom.cluster.fences`; what is stored of copies that differ:
  :mod:`~topom.cluster.differing`; which groups may have old keys of which slots: :mod:`~topom.cluster.leftovers`; what
  is stored of a placement under way: :mod:`~topom.cluster.placement_run`;
- when topom does nothing by itself: :mod:`~topom.cluster.hands_off` (paused by an operator),
  :mod:`~topom.cluster.protection` (many members are lost);
- in which hours keys may move: :mod:`~topom.cluster.hours`; how fast they moved: :mod:`~topom.cluster.speed`;
- what clients get when they follow the table: :mod:`~topom.cluster.tablehistory`, :mod:`~topom.cluster.waiters`.
"""
