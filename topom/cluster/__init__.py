"""The state of the cluster as one value, and the one writer that changes it (**epochs**).

May import: errors, store.

:mod:`~topom.cluster.state` has all that topom remembers; it never changes, each change makes a new one.
:mod:`~topom.cluster.ledger` stores that one, and the events of the change in the same write.

To change

- what an operator may do to groups, servers and slots: :mod:`~topom.cluster.topology`, pure functions;
- what is remembered: a field in :mod:`~topom.cluster.state`, its document in :mod:`~topom.cluster.records`;
- what has to hold of every state that is stored, whoever changes it: :mod:`~topom.cluster.rules`;
- which events a change has: :mod:`~topom.cluster.event_finding`; their names: :mod:`~topom.cluster.events`;
- what cancelling, skipping and retrying do: :mod:`~topom.cluster.cancelling`;
- what is stored of fences: :mod:`~topom.cluster.fences`; of copies that differ: :mod:`~topom.cluster.differing`; of a
  placement that is being applied: :mod:`~topom.cluster.placement_run`;
- in which hours keys may move: :mod:`~topom.cluster.hours`; how fast they moved: :mod:`~topom.cluster.speed`;
- what clients get that follow the table: :mod:`~topom.cluster.tablehistory`, :mod:`~topom.cluster.waiters`.
"""
