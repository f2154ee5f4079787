"""Redis Sentinels find a new master when one fails: topom tells them what to watch, and follows them.

Every Sentinel that topom knows watches every group with a replica, under the name ``<product>-<group id>``
(:mod:`topom.masters.sentinels.monitoring`). If a majority of all of them name another server as a group's master
(:mod:`topom.masters.sentinels.votes`), and that server says so itself (:mod:`topom.servers.readings`), it becomes the
group's master in the slot table (:mod:`topom.masters.sentinels.following`): by an **epochs** change like any other.

They elect only whole copies of the group (:mod:`topom.masters.sentinels.electable`), and forget servers that have left
it (:mod:`topom.masters.sentinels.strangers`). While topom itself gives a group another master, they do not watch it
(:mod:`topom.masters.sentinels.unwatched`).
"""
