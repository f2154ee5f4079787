"""The control plane: what the cluster is, and every change of it.

Rooms, from the ground up; each imports only rooms that stand before it, and its own text says which:

- :mod:`topom.reasons`: why something waits.
- :mod:`topom.errors`, :mod:`topom.periodic`: errors as types; looking at what is to be done, again and again.
- :mod:`topom.store`: where state is kept, and who leads.
- :mod:`topom.cluster`: the state, and the one writer of it.
- :mod:`topom.servers`: what a Redis server says, and what it is told.
- :mod:`topom.proxies`: members of the barrier.
- :mod:`topom.migration`: slots on their way.
- :mod:`topom.masters`: who is a group's master.
- :mod:`topom.copies`: who holds a copy of a group, and whether it is whole.
- :mod:`topom.placement`: on which nodes copies are.
- :mod:`topom.balance`: which slots should be where.
- :mod:`topom.leaving`: groups, servers and nodes on their way out.
- :mod:`topom.term`: one process, and its term of leading.
- :mod:`topom.api`: what others may ask and tell.
- :mod:`topom.server`: the process.

The picture, and a table of what to change where, are in ``docs/architecture.md``.
"""
