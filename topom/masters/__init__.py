"""Which server is a group's master: planned changes, failover by topom, and failover by Redis Sentinel.

May import: reasons, errors, periodic, cluster, servers, proxies, copies.

To change

- which server may become, or stay, a master, why not, and which of several is chosen: :mod:`~topom.masters.choice`, for
  every change of masters; rule by rule: :mod:`~topom.masters.choicerules`;
- when a failed master is replaced: :mod:`~topom.masters.failover`;
- how a change of masters is carried out: :mod:`~topom.masters.promotions`; its lock: :mod:`~topom.masters.grouplocks`;
  how it ends, and goes on afterwards: :mod:`~topom.masters.endings`; by force, for a group that stays locked:
  :mod:`~topom.masters.lockedgroups`;
- how servers come to follow the new master: :mod:`~topom.masters.followers`;
- what is known of masters' places in their streams: :mod:`~topom.masters.offsets`;
- what is counted of changes of masters: :mod:`~topom.masters.outcomes`;
- what Sentinels are told, and how they are followed: :mod:`topom.masters.sentinels`.
"""
