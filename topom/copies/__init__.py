"""Copies of a group: how a server is filled, when it counts as whole, and whether it holds what its master holds.

May import: reasons, errors, periodic, store, cluster, servers, proxies.

To change

- what may be wanted of a server, and how a part of topom asks for copies: :mod:`~topom.copies.wanted`;
- when which copy is made, of all that are wanted: :mod:`~topom.copies.filling`;
- how far a copy is, and what is to be done: :mod:`~topom.copies.deciding`;
- how a server is told to follow a master: :mod:`~topom.copies.telling`;
- which servers join a group, and what is stored of them: :mod:`~topom.copies.joining`;
- what becomes of a replica that follows another master: :mod:`~topom.copies.strays`;
- what is compared of a replica and its master: :mod:`topom.copies.digests`.
"""
