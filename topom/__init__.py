"""The control plane: what the cluster is, and every change of it.

Rooms, from the ground up. Each imports only rooms that stand before it, and its own docstring says which:

- :mod:`topom.reasons`: why something waits.
- :mod:`topom.errors`, :mod:`topom.periodic`: errors as types; loops that look again and again at what is to be done.
- :mod:`topom.store`: where state is kept, and who leads.
- :mod:`topom.cluster`: the state, and the one writer of it.
- :mod:`topom.servers`: what a Redis server says, and what it is told.
- :mod:`topom.proxies`: the proxies that are members, and the barrier.
- :mod:`topom.load`: how much there is to do, as the proxies count it.
- :mod:`topom.migration`: slots that move.
- :mod:`topom.copies`: which servers hold a copy of a group, and whether it is whole.
- :mod:`topom.masters`: which server is a group's master.
- :mod:`topom.placement`: on which nodes copies are.
- :mod:`topom.balance`: which slots should be where.
- :mod:`topom.leaving`: groups, servers and nodes that are leaving.
- :mod:`topom.term`: one process, and its term of leading.
- :mod:`topom.api`: what others may ask and tell.
- :mod:`topom.server`: the process.

The picture is in ``docs/architecture.md``, a table of what to change where in ``docs/where-to-change.md``.
"""
