"""The state of the cluster as one value, and the one writer that changes it (**epochs**).

May import: reasons, errors, store.

:mod:`~topom.cluster.state` has all that topom remembers; it never changes, each change makes a new one.
:mod:`~topom.cluster.ledger` stores that one, and the events of the change in the same write.

To change

- what an operator may do to groups, servers and slots: :mod:`~topom.cluster.topology`, pure functions;
- what is remembered: a field in :mod:`~topom.cluster.state`, its document in :mod:`~topom.cluster.records`; what topom
  alone keeps of slots, groups or servers is such a field by id, and no field of the slot table, which proxies get;
- what has to hold of every state that is stored, whoever changes it: :mod:`~topom.cluster.rules`;
- which events a change has: :mod:`~topom.cluster.event_finding`; their names: :mod:`~topom.cluster.events`;
  where they go once they are stored: :mod:`~topom.cluster.event_sinks`; the sinks are in :mod:`topom.term` or
  :mod:`topom.api`;
- what cancelling, skipping and retrying do: :mod:`~topom.cluster.cancelling`;
- what is stored of fences: :mod:`~topom.cluster.fences`; of copies that differ: :mod:`~topom.cluster.differing`; of a
  placement that is being applied: :mod:`~topom.cluster.placement_run`;
- when topom does nothing by itself: :mod:`~topom.cluster.hands_off` (paused by an operator),
  :mod:`~topom.cluster.protection` (many members are lost);
- in which hours keys may move: :mod:`~topom.cluster.hours`; how fast they moved: :mod:`~topom.cluster.speed`;
- what clients get that follow the table: :mod:`~topom.cluster.tablehistory`, :mod:`~topom.cluster.waiters`.
"""
