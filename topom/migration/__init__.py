"""Moves slots from one group to another, in batches, with the barrier (**drained**, **complete**).

May import: reasons, errors, periodic, store, cluster, servers, proxies, migrators.

To change

- which slots move together, and which pairs of groups side by side: :mod:`~topom.migration.batches`; how batches of one
  source share a stream: :mod:`topom.migrators.gathering`;
- what becomes of a batch that fails: :mod:`~topom.migration.actions`;
- the steps of one batch, put together: :mod:`~topom.migration.steps`; how it begins: :mod:`~topom.migration.begin`; the
  two ways of its keys: :mod:`~topom.migration.bykeys`, and :mod:`~topom.migration.bycopy` with
  :mod:`~topom.migration.streamed`; the lock: :mod:`~topom.migration.lock`; its end: :mod:`~topom.migration.arrival`;
- how a step is stored: :mod:`~topom.migration.stored`; what all steps need: :mod:`~topom.migration.interfaces`;
- when it is said that a copy does not get level: :mod:`~topom.migration.levelling`;
- which way slots move, and what that costs: :mod:`~topom.migration.ways`; what that is decided by:
  :mod:`~topom.migration.choosing`;
- why a pair waits, and how long: :mod:`~topom.migration.deferral`;
- what operators order while slots move: :mod:`~topom.migration.orders`; how offline slots are assigned to a group:
  :mod:`~topom.migration.assigning`;
- which copies by the replication stream there are: :mod:`~topom.migration.streamed`; who makes them:
  :mod:`topom.migrators`;
- how topom uses the migrator: :mod:`~topom.migration.mover`; how keys are moved is in the folder ``migrator``;
- when keys of slots that a server does not own are deleted there: :mod:`~topom.migration.sweeping` (**owned**); which
  keys these are: :mod:`~topom.migration.foreignkeys`.
"""
