"""Placement: on which nodes and in which datacenters a group's master and replicas are, and how that is changed.

May import: reasons, errors, periodic, store, cluster, servers, proxies, copies, masters.

To change

- which nodes are chosen: :mod:`topom.placement.planner`, pure functions that know no server;
- with which servers: :mod:`~topom.placement.plan`; what the placement is now: :mod:`~topom.placement.picture`;
- how a step is done: :mod:`~topom.placement.stepping`; which copies it wants: :mod:`~topom.placement.copying`; how it
  changes the state: :mod:`~topom.placement.changes`; how servers of the pool cease to follow:
  :mod:`~topom.placement.detaching`;
- when a placement begins by itself: :mod:`~topom.placement.applying`, :mod:`~topom.placement.beginnings`;
- which servers may be taken: :mod:`~topom.placement.pool`.
"""
