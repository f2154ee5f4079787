"""A client of topom's HTTP API, for the command line, the demo and scripts in Python.

Answers are the API's own JSON objects. A failure is a :class:`slotferry.calls.TopomError`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from slotferry.calls import REQUEST_SECONDS, Answer, TopomCalls, TopomRefused
from slots.keyslots import KeySlots
from slots.rules import rules_from_wire
from slots.urlpaths import literal

DEFAULT_URL = "http://127.0.0.1:8380"


class TopomClient(TopomCalls):
    """The calls of topom's API: see :class:`slotferry.calls.TopomCalls` for addresses and failures."""

    async def status(self) -> Answer:
        """Everything at a glance: product, epoch, groups, proxies, slots, migration."""
        return await self._object("GET", "/status")

    async def doctor(self) -> Answer:
        """``{"at", "servers", "not_asked", "counts", "more", "findings": [...]}``: what will hurt, the worst first."""
        return await self._object("GET", "/doctor", read_seconds=REQUEST_SECONDS)

    async def events(self, since: int | None = None, limit: int = 100) -> Answer:
        """``{"oldest", "newest", "events"}``: the newest events, or those after ``since``, the oldest of them first."""
        known = None if since is None else str(since)
        return await self._object("GET", "/events", since=known, limit=str(limit))

    async def groups(self) -> list[Answer]:
        """All groups."""
        return await self._list("/groups", "groups")

    async def add_group(
        self,
        group_id: int,
        servers: Sequence[str],
        datacenter: str = "",
        node: str = "",
        wipe: bool = False,
        offline_ok: bool = False,
    ) -> Answer:
        """Make a group of these servers, ``host:port``, the master first, all in one datacenter and on one node.

        Args:
            wipe: keys that its replicas hold may be lost.
            offline_ok: servers that do not answer now are taken, too.
        """
        named = {**_named(datacenter=datacenter, node=node), **_allowed(wipe=wipe, offline_ok=offline_ok)}
        return await self._object("POST", "/groups", {"id": group_id, "servers": list(servers), **named})

    async def remove_group(self, group_id: int) -> Answer:
        """Remove a group that owns no slots."""
        return await self._object("DELETE", f"/groups/{group_id}")

    async def promote(self, group_id: int, address: str, force: bool = False) -> Answer:
        """Make a replica the master of its group; with ``force`` even if the master does not answer."""
        return await self._object("POST", f"/groups/{group_id}/promote", {"server": address, "force": force})

    async def sweep_server(self, group_id: int, address: str) -> Answer:
        """Remove all keys of slots that other groups own from a group's master."""
        return await self._object("POST", f"/groups/{group_id}/servers/{literal(address, ':')}/sweep")

    async def start_digest(self, group_id: int, server: str | None, keys_per_second: int) -> Answer:
        """Begin to compare one replica of a group, or all, with its master."""
        body = {"server": server, "keys_per_second": keys_per_second}
        return await self._object("POST", f"/groups/{group_id}/digest", body)

    async def digest(self, group_id: int, slots: bool = False) -> Answer:
        """The present or last check of a group's replicas, with the digests of every slot if ``slots``."""
        return await self._object("GET", f"/groups/{group_id}/digest", slots=str(slots).lower())

    async def digest_if_any(self, group_id: int, slots: bool = False) -> Answer:
        """As :meth:`digest`; empty if nothing is known of the group's replicas."""
        try:
            return await self.digest(group_id, slots)
        except TopomRefused as error:
            if error.error != "NoCheck":
                raise
            return {"group_id": group_id, "replicas": [], "known": []}

    async def cancel_digest(self, group_id: int) -> Answer:
        """End the check of a group's replicas."""
        return await self._object("DELETE", f"/groups/{group_id}/digest")

    async def resync_replica(self, group_id: int, server: str | None) -> Answer:
        """Have the master give a replica, or all that differ, a whole new copy."""
        return await self._object("POST", f"/groups/{group_id}/digest/resync", {"server": server})

    async def rules(self) -> Answer:
        """The slot rules, and how a change of them goes or went."""
        return await self._object("GET", "/rules")

    async def change_rules(
        self, add: Sequence[Answer] = (), remove: Sequence[Answer] = (), first: bool = False, dry_run: bool = False
    ) -> Answer:
        """Begin to change the slot rules; each is ``{"pattern", "database", "tag"}``, and has no tag to be removed.

        Args:
            first: put new rules before the others.
            dry_run: only count the keys that would be in another group.
        """
        body = {"add": list(add), "remove": list(remove), "first": first, "dry_run": dry_run}
        return await self._object("POST", "/rules", body)

    async def cancel_rules(self) -> Answer:
        """End a change of the slot rules that is under way."""
        return await self._object("POST", "/rules/cancel")

    async def users(self) -> Answer:
        """The users of clients that topom keeps, and the proxies at which they are not as there."""
        return await self._object("GET", "/users")

    async def user(self, name: str) -> Answer:
        """One of these users; without its password."""
        return await self._object("GET", f"/users/{literal(name, '')}")

    async def set_user(self, name: str, fields: Mapping[str, Any]) -> Answer:
        """Add a user, or change these fields of one; None brings a field back to its default."""
        return await self._object("POST", f"/users/{literal(name, '')}", {"fields": dict(fields)})

    async def remove_user(self, name: str, opens: bool = False) -> Answer:
        """Remove a user. ``opens``: also ``default``, so that proxies without users of their own need no login."""
        return await self._object("DELETE", f"/users/{literal(name, '')}", open=str(opens).lower())

    async def protection(self) -> Answer:
        """The state of the protection mode: whether so many members are lost that topom does nothing by itself."""
        return await self._object("GET", "/protection")

    async def pause(self, why: str) -> Answer:
        """Have topom do nothing by itself."""
        return await self._object("POST", "/pause", {"why": why})

    async def resume(self) -> Answer:
        """Have topom act by itself again."""
        return await self._object("POST", "/resume", {})

    async def lift_protection(self) -> Answer:
        """Have topom act by itself although many members are lost."""
        return await self._object("POST", "/protection/lift", {})

    async def add_server(
        self,
        group_id: int,
        address: str,
        datacenter: str = "",
        node: str = "",
        wipe: bool = False,
        offline_ok: bool = False,
    ) -> Answer:
        """Add a server to a group.

        Args:
            wipe: keys that a future replica holds may be lost.
            offline_ok: it is added although it does not answer now.
        """
        named = {**_named(datacenter=datacenter, node=node), **_allowed(wipe=wipe, offline_ok=offline_ok)}
        return await self._object("POST", f"/groups/{group_id}/servers", {"address": address, **named})

    async def set_datacenter(self, group_id: int, address: str, datacenter: str) -> Answer:
        """Set the datacenter of a server; an empty name removes it."""
        return await self.set_place(group_id, address, datacenter=datacenter)

    async def set_place(
        self, group_id: int, address: str, *, datacenter: str | None = None, node: str | None = None
    ) -> Answer:
        """Set the datacenter and the node of a server; None leaves a value, an empty name removes it."""
        path = f"/groups/{group_id}/servers/{literal(address, ':')}"
        said = {"datacenter": datacenter, "node": node}
        return await self._object("PATCH", path, {name: value for name, value in said.items() if value is not None})

    async def remove_server(self, group_id: int, address: str) -> Answer:
        """Remove a server from a group."""
        return await self._object("DELETE", f"/groups/{group_id}/servers/{literal(address, ':')}")

    async def pool(self) -> Answer:
        """``{"servers": [...]}``: the servers that are in no group and may be taken into one."""
        return await self._object("GET", "/pool")

    async def add_to_pool(self, address: str, datacenter: str = "", node: str = "", wipe: bool = False) -> Answer:
        """Register a server that is in no group; ``wipe``: its keys may be lost. Gives the new pool."""
        named = _named(datacenter=datacenter, node=node)
        return await self._object("POST", "/pool", {"address": address, **named, **({"wipe": True} if wipe else {})})

    async def remove_from_pool(self, address: str) -> Answer:
        """Forget a server that is in no group. Gives the new pool."""
        return await self._object("DELETE", f"/pool/{literal(address, ':')}")

    async def placement(self) -> Answer:
        """The table of groups and nodes, the changes of a plan, and the present run."""
        return await self._object("GET", "/placement")

    async def apply_placement(self) -> Answer:
        """Begin to carry out a placement plan; answers as :meth:`placement`."""
        return await self._object("POST", "/placement/apply", {})

    async def cancel_placement(self) -> Answer:
        """End the present run of a placement; answers as :meth:`placement`."""
        return await self._object("POST", "/placement/cancel", {})

    async def set_auto_placement(self, on: bool) -> Answer:
        """Have topom place by itself, or not; answers as :meth:`placement`."""
        return await self._object("POST", "/placement/auto", {"on": on})

    async def sentinels(self) -> Answer:
        """``{"ha", "majority", "sentinels": [...], "groups": [...]}``: the Sentinels' views of each group."""
        return await self._object("GET", "/sentinels")

    async def add_sentinel(self, address: str) -> Answer:
        """Have one more Sentinel, ``host:port``, watch all groups."""
        return await self._object("POST", "/sentinels", {"address": address})

    async def remove_sentinel(self, address: str) -> Answer:
        """Have a Sentinel watch nothing any more: ``{"failed": {address: reason}}``."""
        return await self._object("DELETE", f"/sentinels/{literal(address, ':')}")

    async def resync_sentinels(self) -> Answer:
        """Have all Sentinels watch the groups again: ``{"failed": {address: reason}}``."""
        return await self._object("POST", "/sentinels/resync")

    async def proxies(self) -> list[Answer]:
        """All proxies that topom knows."""
        return await self._list("/proxies", "proxies")

    async def migrators(self) -> Answer:
        """``{"migrators": [...]}``: the processes that make copies by the replication stream."""
        return await self._object("GET", "/migrators")

    async def drain_group(self, group_id: int, why: str = "") -> Answer:
        """Have a group leave once its slots have moved to others. Gives all that is on its way out."""
        return await self._object("POST", f"/groups/{group_id}/drain", why=why or None)

    async def keep_group(self, group_id: int) -> Answer:
        """Have a draining group stay. Gives all that is on its way out."""
        return await self._object("DELETE", f"/groups/{group_id}/drain")

    async def drain_server(self, group_id: int, address: str, why: str = "") -> Answer:
        """Have a server leave: a replica at once, a master once another server has replaced it. Gives the group's
        servers."""
        path = f"/groups/{group_id}/servers/{literal(address, ':')}/drain"
        return await self._object("POST", path, why=why or None)

    async def keep_server(self, group_id: int, address: str) -> Answer:
        """Have a draining server stay. Gives the group's servers."""
        return await self._object("DELETE", f"/groups/{group_id}/servers/{literal(address, ':')}/drain")

    async def drain_node(self, node: str, why: str = "", fewer_copies: bool = False) -> Answer:
        """Have all servers of a node leave. Gives all that is on its way out."""
        fewer = "true" if fewer_copies else None
        return await self._object("POST", f"/nodes/{literal(node, ':')}/drain", why=why or None, fewer_copies=fewer)

    async def keep_node(self, node: str) -> Answer:
        """Have a draining node stay. Gives all that is on its way out."""
        return await self._object("DELETE", f"/nodes/{literal(node, ':')}/drain")

    async def drain_proxy(self, proxy_id: int) -> Answer:
        """Have a proxy let its clients go and leave. Gives topom's data about it."""
        return await self._object("POST", f"/proxies/{proxy_id}/drain")

    async def reload_proxies(self, proxy_id: int | None) -> list[Answer]:
        """Have a proxy, or all, read their settings anew; gives what each answered."""
        if proxy_id is None:
            return await self._list("/proxies/reload", "proxies", "POST")
        return [await self._object("POST", f"/proxies/{proxy_id}/reload")]

    async def settings(self) -> Answer:
        """Which settings are in force at the topom that is asked: ``{"file", "since", "restart", "refused"}``."""
        return await self._object("GET", "/settings")

    async def reload_settings(self) -> Answer:
        """Have the topom that is asked read its settings anew; the same, and ``changed``."""
        return await self._object("POST", "/settings/reload")

    async def remove_proxy(self, proxy_id: int, force: bool = False) -> Answer:
        """Fence a proxy off the servers and forget it; ``force`` even where a server cannot be reached."""
        return await self._object("DELETE", f"/proxies/{proxy_id}", force="true" if force else None)

    async def slots(self, biggest: int = 0) -> Answer:
        """``{"epoch", "slots": [...]}``, every slot in its wire form, with at most ``biggest`` of its biggest keys."""
        return await self._object("GET", "/slots", biggest=str(biggest))

    async def sizes(self) -> Answer:
        """The known sizes of slots: totals by group, their age, and which are stale."""
        return await self._object("GET", "/sizes")

    async def post_sizes(self, measurement: Mapping[str, Any]) -> Answer:
        """Send measured sizes to topom, in the form of ``POST /sizes``; answers as :meth:`sizes`."""
        return await self._object("POST", "/sizes", measurement)

    async def load(self, all_slots: bool = False) -> Answer:
        """How busy slots (the busiest, or all), groups, servers, proxies and users are, and which keys are hot."""
        return await self._object("GET", "/load", slots="all" if all_slots else "top")

    async def notable(self, most: int) -> Answer:
        """``{"since", "requests"}``: big keys and slow commands, the one that was seen last first."""
        return await self._object("GET", "/load/notable", most=str(most))

    async def load_history(self, of: str, minutes: int, most: int) -> Answer:
        """``{"of", "minutes", "series"}``: the load by minute of the busiest groups, servers, proxies, users or
        slots."""
        return await self._object("GET", "/load/history", of=of, minutes=str(minutes), most=str(most))

    async def assign_slots(self, slots: str, group_id: int) -> Answer:
        """Give offline slots, written as ranges, to a group, at once."""
        return await self._object("POST", "/slots/assign", {"slots": slots, "group_id": group_id})

    async def move_slots(self, slots: str, group_id: int) -> Answer:
        """Have slots with their keys moved to a group while clients work."""
        return await self._object("POST", "/slots/move", {"slots": slots, "group_id": group_id})

    async def take_slots_offline(self, slots: str) -> Answer:
        """Have no group own these slots; proxies then refuse their commands."""
        return await self._object("POST", "/slots/offline", {"slots": slots})

    async def rebalance(
        self,
        policy: str = "codis",
        dry_run: bool = False,
        *,
        tolerance: float | None = None,
        most_slots: int | None = None,
        most_bytes: int | None = None,
        drain: Sequence[int] = (),
        capacity: Mapping[int, float] | None = None,
        confirm: bool = False,
    ) -> Answer:
        """Plan moves by a policy and, unless ``dry_run``, begin them.

        ``confirm``: also if a plan by number undoes what the last plan has done.

        ``{"policy", "dry_run", "moves", "reasons", "warnings", "cost"}``. Arguments that are left out have topom's
        defaults.
        """
        weights = [f"{group_id}={weight!r}" for group_id, weight in (capacity or {}).items()]
        return await self._object(
            "POST",
            "/rebalance",
            policy=policy,
            dry_run="true" if dry_run else "false",
            confirm="true" if confirm else "false",
            tolerance=None if tolerance is None else str(tolerance),
            most_slots=None if most_slots is None else str(most_slots),
            most_bytes=None if most_bytes is None else str(most_bytes),
            drain=[str(group_id) for group_id in drain],
            capacity=weights,
        )

    async def rebalance_decision(self) -> Answer:
        """What topom decided last about moving slots by itself, and why."""
        return await self._object("GET", "/rebalance/decision")

    async def migration(self) -> Answer:
        """The state of the migration."""
        return await self._object("GET", "/migration")

    async def pause_migration(self) -> Answer:
        """Stop moving keys; keys that have moved stay there."""
        return await self._object("POST", "/migration/pause")

    async def resume_migration(self) -> Answer:
        """Go on moving keys."""
        return await self._object("POST", "/migration/resume")

    async def cancel_migration(self, slots: str | None = None) -> Answer:
        """Cancel the actions of slots, written as ranges, or of all: ``{"ended", "returning", "too_late"}``."""
        return await self._object("POST", "/migration/cancel", {"slots": slots})

    async def skip_slots(self, slots: str) -> Answer:
        """Have slots, written as ranges, step aside until they are retried."""
        return await self._object("POST", "/migration/skip", {"slots": slots})

    async def retry_migration(self, slots: str | None = None) -> Answer:
        """Try again at once what failed; skipped slots, these or all, go on, too."""
        return await self._object("POST", "/migration/retry", {"slots": slots})

    async def set_migration(self, **settings: int | float | str) -> Answer:
        """Change settings of the migration, which topom remembers."""
        return await self._object("PATCH", "/migration", settings)


def _named(**names: str) -> dict[str, str]:
    """The arguments that are not empty: topom only gets those that were given."""
    return {key: name for key, name in names.items() if name}


def _allowed(**flags: bool) -> dict[str, bool]:
    """The flags that are set. An earlier topom does not know them all, and need not while they are not used."""
    return {key: True for key, flag in flags.items() if flag}


def key_slots_of(status: Mapping[str, Any]) -> KeySlots:
    """Which slot each key of the product has, by topom's answer to ``/status``."""
    return KeySlots(status["slot_function"], status["number_of_slots"], rules_from_wire(status["slot_rules"]))
