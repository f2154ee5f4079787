"""Redis Sentinel as who finds a new master when one fails: topom tells it what to watch, and follows it.

Every Sentinel that topom knows watches every group with a replica, under the name ``<product>-<group id>``
(:mod:`topom.masters.sentinels.monitoring`). When a majority of all of them name another server as a group's master
(:mod:`topom.masters.sentinels.votes`), and that server says so itself (:mod:`topom.masters.sentinels.standing`), it
becomes the group's master in the slot table (:mod:`topom.masters.sentinels.following`): by an **epochs** change like
any other.

They elect none but whole copies of the group (:mod:`topom.masters.sentinels.electable`), and forget who has left it
(:mod:`topom.masters.sentinels.strangers`). What topom itself gives another master they leave alone meanwhile
(:mod:`topom.masters.sentinels.leftalone`).
"""
