"""Who is a group's master: planned changes, failover by topom, and failover by Redis Sentinel.

May import: errors, periodic, cluster, servers, proxies.

To change

- which replica takes the place of a failed master, and when: :mod:`~topom.masters.failover`;
- how a change of masters is carried out: :mod:`~topom.masters.promotions`;
- who follows the new master: :mod:`~topom.masters.followers`;
- how far behind a replica may be: :mod:`~topom.masters.offsets`, :mod:`~topom.masters.failover`;
- when nothing is done by itself because many are lost: :mod:`~topom.masters.protection`;
- what is counted of changes of masters: :mod:`~topom.masters.outcomes`;
- what Sentinels are told, and how they are followed: :mod:`topom.masters.sentinels`.
"""
