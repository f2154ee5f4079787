"""One topom process: it follows, or leads for a term with objects that live for that term.

May import: reasons, errors, periodic, store, cluster, servers, proxies, load, migrators, doctor, migration, copies,
masters, placement, balance, leaving.

To change

- when a topom leads, and what it does when it ceases to lead: :mod:`~topom.term.node`;
- how the parts of a term are put together, and which of the others each one gets: :mod:`~topom.term.parts`;
  which of them have loops, and how a term begins and ends: :mod:`~topom.term.service`;
- what a follower knows: :mod:`~topom.term.view`, and of the load: :mod:`~topom.term.loadkeeping`; how it tells of
  itself: :mod:`~topom.term.announcing`, :mod:`~topom.term.roster`;
- a setting: :mod:`~topom.term.settings`, and the same line in ``configs/topom.toml``; which part gets it:
  :mod:`~topom.term.features`;
- which store is opened: :mod:`~topom.term.stores`;
- a figure for Prometheus: :mod:`~topom.term.metrics`;
- what becomes of a loop that fails: :mod:`~topom.term.tending`.
"""
