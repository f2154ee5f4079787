"""Redis Sentinel as who finds a new master when one fails: topom tells it what to watch, and follows it.

Every Sentinel that topom knows watches every group with a replica, under the name ``<product>-<group id>``
(:mod:`topom.sentinels.monitoring`). When a majority of all of them name another server as a group's master
(:mod:`topom.sentinels.votes`), and that server says so itself (:mod:`topom.sentinels.standing`), it becomes the
group's master in the slot table (:mod:`topom.sentinels.following`): by an **epochs** change like any other.

They elect none but whole copies of the group (:mod:`topom.sentinels.electable`), and forget who has left it
(:mod:`topom.sentinels.strangers`). What topom itself gives another master they leave alone meanwhile
(:mod:`topom.sentinels.leftalone`).
"""
