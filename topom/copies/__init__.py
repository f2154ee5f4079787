"""Copies of a group: how a server is filled, when it counts as whole, and whether it holds what its master holds.

May import: reasons, errors, periodic, cluster, servers, proxies.

To change

- how a server is told to be filled by another: :mod:`~topom.copies.filling`, for all who want that;
- when a server that joins counts as whole: :mod:`~topom.copies.joining`;
- what becomes of a replica that follows another master: :mod:`~topom.copies.strays`;
- what is compared of a replica and its master: :mod:`topom.copies.digests`.
"""
