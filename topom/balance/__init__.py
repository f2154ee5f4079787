"""Balance: plans which slots should be in which group, by number, bytes or load, and begins their moves.

May import: reasons, errors, periodic, store, cluster, servers, load, migration, placement.

To change

- a policy, or to add one: :mod:`topom.balance.planners`, pure functions;
- when a plan is made and begun, and which policy needs sizes or load: :mod:`~topom.balance.rebalancing`;
- when slots move by themselves: :mod:`~topom.balance.deciding` decides, :mod:`~topom.balance.autorebalance` does it;
  :mod:`~topom.balance.simulation` tries it over a fleet of numbers;
- what planning needs of the measured load: :mod:`~topom.balance.measured`;
- what is known of the sizes of slots and prefixes: :mod:`~topom.balance.sizes`; where that is stored:
  :mod:`~topom.balance.sizebook`, :mod:`~topom.balance.size_records`;
- the layout of a cluster that has none: :mod:`~topom.balance.firstlayout`.
"""
