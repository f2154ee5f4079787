"""The operator's verbs from the command line to the API and back, with a topom that is played by a function."""

import asyncio
import io
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
import yaml
from rich.console import Console
from rich.progress import BarColumn, TextColumn
from typer.testing import CliRunner

from slotferry import __version__, output
from slotferry.client import TopomClient
from slotferry.main import app
from slotferry.operator import digest, waiting
from slotferry.operator.migration import say_migration
from slotferry.operator.sizes import MOST_PREFIXES
from slotferry.operator.status import next_step
from slotferry.operator.waiting import (
    STUCK_SECONDS,
    MoveAbandoned,
    MoveStuck,
    Standstill,
    WaitedTooLong,
    wait_moved,
)
from tests.unit.slotferry.played_topom import play_topom


def because(what: str, to_do: str = "") -> dict[str, Any]:
    """A reason as the API has it, without a known beginning."""
    return {"kind": "server", "what": what, "since": 0.0, "to_do": to_do}


BATCH = {
    "source": 1,
    "target": 2,
    "state": "migrating",
    "slots": "0-1",
    "keys_moved": 10,
    "bytes_moved": 20,
    "remaining_keys": None,
    "passes": 1,
    "reason": because("waits for [proxy 3]"),
}
MIGRATION = {
    "epoch": 1,
    "paused": False,
    "settings": {"parallel_slots": 256, "keys_per_second": 0},
    "slots_pending": 1,
    "slots_moving": 2,
    "slots_moved": 3,
    "keys_moved": 4000,
    "bytes_moved": 5_000_000,
    "keys_per_second": 123.0,
    "remaining_keys": 77,
    "batches": [BATCH],
    "skipped": [{"slots": "7-8", "reason": because("target h:1 is full")}],
}
PROXY = {
    "id": 3,
    "instance": "a" * 32,
    "address": "127.0.0.1:6380",
    "hostname": "here",
    "pid": 77,
    "workers": 2,
    "state": "online",
    "epoch": 9,
    "counters": {"clients": 5, "requests": 1234567, "errors": 0},
}
SETTINGS = {"file": "/etc/[topom].toml", "since": 1.0, "restart": ["listen", "url"], "refused": ""}
PROXY_RELOADED = {
    **SETTINGS,
    "id": 3,
    "address": "127.0.0.1:6380",
    "silent": "",
    "changed": ["token", "users"],
    "hidden": ["password"],
    "workers": 2,
    "following": 2,
}
LEAVING = {"kind": "group", "id": "5", "why": "old", "since": 1.0}
SENTINELS = {
    "ha": "sentinel",
    "majority": 2,
    "sentinels": [{"address": "h:1", "up": True, "reason": None, "masters": {"1": "127.0.0.1:7001"}}],
    "groups": [{"id": 1, "master": "127.0.0.1:7001", "reason": None}],
}
SLOTS: dict[str, Any] = {
    "epoch": 9,
    "slots": [
        {"id": 0, "group_id": 1, "action": {"state": "migrating", "target_id": 2}},
        {"id": 1, "group_id": 1, "action": {}},
        {
            "id": 2,
            "group_id": 1,
            "action": {},
            "bytes": 3000,
            "keys": 4,
            "biggest": [{"key": "a[1]\x1b", "database": 3, "type": "hash", "bytes": 2048}],
        },
        {"id": 3, "group_id": 1, "action": {"state": "pending", "target_id": 2}, "reason": because("no room at all")},
    ],
}
STATUS: dict[str, Any] = {
    "loops": [{"name": "placement", "says": "2 of 3 steps are done", "since": 1.5}],
    "product": "demo",
    "epoch": 9,
    "number_of_slots": 4,
    "slot_function": "crc32",
    "databases": 16,
    "groups": [
        {
            "id": 1,
            "slots": 3,
            "servers": [
                {"address": "127.0.0.1:6379", "role": "master", "up": True, "keys": 10, "memory_bytes": 2048},
                {"address": "127.0.0.1:6378", "role": None, "up": False, "keys": None, "memory_bytes": None},
            ],
        },
        {"id": 2, "slots": 0, "servers": []},
    ],
    "proxies": [PROXY],
    "migrators": [
        {
            "id": 1,
            "hostname": "carrier",
            "pid": 77,
            "own": True,
            "node": "",
            "datacenter": "d1",
            "copies": [{}],
            "keys_per_second": 123456.7,
            "disk_bytes": 3 << 30,
        }
    ],
    "slots": {"total": 4, "assigned": 3, "offline": 1, "moving": 1},
    "migration": MIGRATION,
}
MOVES = [{"slot": 2, "from": 1, "to": 2}, {"slot": 3, "from": 0, "to": 2}]
SIZES = {
    "last": {
        "taken_at": 1.0,
        "age_seconds": 9000.0,
        "seconds": 1.0,
        "complete": True,
        "missing": [],
        "sampled": 1.0,
        "bytes": 3000,
        "keys": 4,
    },
    "stale_seconds": 604800.0,
    "bytes": 3000,
    "keys": 4,
    "groups": [{"group_id": 1, "slots": 3, "bytes": 3000, "keys": 4}],
    "stale": "",
    "moved": "",
    "unknown": "",
    "warnings": [],
    "prefixes": [
        {"depth": 1, "prefix": "[b]a\x1b:", "keys": 2, "bytes": 2000},
        {"depth": 0, "prefix": "", "keys": 1, "bytes": 500},
        *({"depth": 1, "prefix": f"of{number}:", "keys": 1, "bytes": 5} for number in range(20)),
    ],
}
EVENT = {
    "id": 7,
    "at": 1.5,
    "who": "ada@host (by operator)",
    "what": "slots_assigned",
    "text": "slots 0-1 were assigned to group 2",
    "epoch_before": 8,
    "epoch_after": 9,
}
DIGEST = {
    "server": "h:2",
    "master": "h:1",
    "stage": "cancelled",
    "reason": None,
    "began_at": 1.0,
    "seconds": 2.0,
    "keys": 7,
    "keys_total": 9,
    "differences": 2,
    "named": [{"slot": 1, "database": 0, "key": "a", "what": "value"}],
    "uncompared": 1,
    "uncompared_named": [{"slot": 2, "database": 0, "key": "b", "what": "written too often"}],
    "promotable": False,
    "resyncing": False,
    "slots": [],
}
PLACEMENT: dict[str, Any] = {
    "epoch": 9,
    "replicas": 2,
    "auto": True,
    "reason": because("slots are being moved"),
    "nodes": [{"name": "rack3", "datacenter": "", "reason": None, "leads": [1, 2], "follows": [], "pool": ["h:9"]}],
    "groups": [{"id": 1, "leader": "rack3", "followers": [], "reason": None}],
    "plan": {
        "rounds": 1,
        "steps": [
            {
                "round": 1,
                "group": 1,
                "kind": "copy",
                "node": "rack3",
                "server": "h:9",
                "text": "h:9 on node rack3 becomes a replica of group 1",
                "state": "waiting",
                "reason": None,
            }
        ],
        "missing": [because("group 2 lacks a copy, which is to be on node rack4")],
    },
    "run": None,
}
POOL = {
    "servers": [
        {
            "address": "h:9",
            "node": "rack3",
            "datacenter": "",
            "wipe": False,
            "up": True,
            "role": "master",
            "keys": 0,
            "memory_bytes": 1000,
        }
    ]
}
BUSY = {
    "requests": 1234.5,
    "errors": 0.5,
    "bytes_in": 2048.0,
    "bytes_out": 4096.0,
    "minute": {"requests": 70_000, "errors": 1, "bytes_in": 1, "bytes_out": 2},
}
LOAD = {
    "measured_seconds": 600.0,
    "minute_seconds": 60.0,
    "proxies_telling": 1,
    "proxies_total": 2,
    "total": {name: value for name, value in BUSY.items() if name != "minute"},
    "slots": [{"slot": 77, "group_id": 1, **BUSY}],
    "groups": [{"group_id": 1, "slots": 3, **BUSY, "milliseconds": 0.5}],
    "servers": [{"server": "h:[1]", "group_id": 1, **BUSY, "milliseconds": 0.25}],
    "proxies": [{"proxy_id": 3, "address": "127.0.0.1:6380", **BUSY}],
    "users": [{"user": "ada", **BUSY}],
    "hot_keys": [
        {
            "key": "user:[7]",
            "hashed": False,
            "length": 8,
            "database": 0,
            "slot": 77,
            "group_id": 1,
            "rate": 400.0,
            "excess": 4.0,
            "share": 0.324,
        }
    ],
}
NOTABLE = {
    "why": "big_collection",
    "command": "hgetall",
    "key": "user:[red]7",
    "hashed": False,
    "length": 11,
    "database": 4,
    "slot": 77,
    "group_id": 1,
    "times": 12,
    "first_at": 100.0,
    "last_at": 200.0,
    "milliseconds": 1234.56,
    "bytes_in": 3 * 2**20,
    "bytes_out": 5 * 2**20,
    "elements": 20_000,
    "user": "ada",
    "client": "10.0.0.7:51234",
    "server": "h:1",
    "proxy_id": 3,
    "proxy_address": "127.0.0.1:6380",
}
GROUPS = [*STATUS["groups"], {"id": 5, "slots": 0, "servers": [{"address": f"h:{port}"} for port in (1, 2, 3)]}]
SERVERS_OF_GROUPS = [
    {**STATUS["groups"][0]["servers"][0], "group_id": 1},
    {**STATUS["groups"][0]["servers"][1], "group_id": 1},
    {"address": "h:1", "role": "master", "group_id": 5},
    {"address": "h:2", "group_id": 5},
    {"address": "h:3", "group_id": 5},
]
RULES = [
    {"pattern": "bull:(*):*", "database": None, "tag": None},
    {"pattern": "*", "database": 5, "tag": "queues"},
]
RULES_CHANGE = {
    "rules": RULES,
    "dry_run": False,
    "stage": "done",
    "began_at": 5.0,
    "keys": 1234,
    "misplaced": 0,
    "named": [],
    "reason": None,
}
USERS = {
    "users": [{"name": "a/b", "password": True, "fields": {"read_only": True, "databases": [0, 3]}}],
    "left_out": [{"proxy_id": 3, "name": "a/b", "cause": "own"}],
    "behind": [{"proxy_id": 4, "cause": "it is not [connected]"}],
}
ANSWERS: dict[tuple[str, str], Any] = {
    ("GET", "/api/v1/load/notable"): {
        "since": 50.0,
        "requests": [
            NOTABLE,
            {**NOTABLE, "why": "slow", "key": "", "length": 0, "slot": None, "group_id": 0, "client": ""},
            {**NOTABLE, "why": "big_request", "key": "0a1b", "hashed": True},
            {**NOTABLE, "why": "big_reply"},
        ],
    },
    ("GET", "/api/v1/load"): LOAD,
    ("GET", "/api/v1/events"): {"oldest": 1, "newest": 7, "events": [EVENT]},
    ("GET", "/api/v1/status"): STATUS,
    ("GET", "/api/v1/doctor"): {"servers": 9, "not_asked": 1, "counts": {"note": 0}, "more": {}, "findings": []},
    ("GET", "/api/v1/slots"): SLOTS,
    ("GET", "/api/v1/sizes"): SIZES,
    ("GET", "/api/v1/proxies"): {"proxies": [PROXY]},
    ("GET", "/api/v1/groups"): {"groups": GROUPS},
    ("GET", "/api/v1/migrators"): {"migrators": STATUS["migrators"]},
    ("GET", "/api/v1/migration"): MIGRATION,
    ("PATCH", "/api/v1/migration"): MIGRATION,
    ("POST", "/api/v1/migration/pause"): MIGRATION,
    ("POST", "/api/v1/migration/resume"): MIGRATION,
    ("POST", "/api/v1/migration/cancel"): {"epoch": 10, "ended": [0, 1], "returning": [3], "too_late": [2]},
    ("POST", "/api/v1/migration/skip"): {"epoch": 10, "slots": [0, 1]},
    ("POST", "/api/v1/migration/retry"): {"epoch": 10, "slots": [0, 1]},
    ("POST", "/api/v1/rebalance"): {"policy": "codis", "dry_run": True, "moves": MOVES},
    ("POST", "/api/v1/groups"): {"epoch": 10, "id": 5, "servers": ["h:1"]},
    ("DELETE", "/api/v1/groups/5"): {"epoch": 10},
    ("POST", "/api/v1/groups/5/promote"): {"epoch": 10, "id": 5, "servers": ["h:1", "h:2", "h:3"]},
    ("POST", "/api/v1/groups/5/servers"): {"epoch": 10, "id": 5, "servers": ["h:1"]},
    ("PATCH", "/api/v1/groups/5/servers/h:1"): {"epoch": 10, "id": 5, "servers": ["h:1"]},
    ("GET", "/api/v1/pool"): POOL,
    ("GET", "/api/v1/placement"): PLACEMENT,
    ("POST", "/api/v1/placement/apply"): {
        **PLACEMENT,
        "run": {"since": 1.0, "who": "operator me", "steps": PLACEMENT["plan"]["steps"]},
    },
    ("POST", "/api/v1/placement/cancel"): PLACEMENT,
    ("POST", "/api/v1/placement/auto"): PLACEMENT,
    ("POST", "/api/v1/pool"): POOL,
    ("DELETE", "/api/v1/pool/h:9"): {"servers": []},
    ("POST", "/api/v1/groups/5/drain"): {"leaving": [LEAVING]},
    ("DELETE", "/api/v1/groups/5/drain"): {"leaving": []},
    ("POST", "/api/v1/groups/5/servers/h:1/drain"): {"epoch": 10, "id": 5, "servers": []},
    ("POST", "/api/v1/groups/5/servers/h:2/drain"): {"epoch": 10, "id": 5, "servers": ["h:2"]},
    ("DELETE", "/api/v1/groups/5/servers/h:1/drain"): {"epoch": 10, "id": 5, "servers": ["h:1"]},
    ("POST", "/api/v1/nodes/host-1/drain"): {"leaving": [{**LEAVING, "kind": "node", "id": "host-1"}]},
    ("DELETE", "/api/v1/nodes/host-1/drain"): {"leaving": []},
    ("DELETE", "/api/v1/groups/5/servers/h:1"): {"epoch": 10, "id": 5, "servers": []},
    ("POST", "/api/v1/proxies/3/drain"): {**PROXY, "draining": True},
    ("POST", "/api/v1/proxies/reload"): {"proxies": [PROXY_RELOADED]},
    ("POST", "/api/v1/proxies/3/reload"): PROXY_RELOADED,
    ("GET", "/api/v1/settings"): SETTINGS,
    ("POST", "/api/v1/settings/reload"): {**SETTINGS, "changed": []},
    ("POST", "/api/v1/groups/5/servers/h:1/sweep"): {"id": 5, "server": "h:1", "removed": 7},
    ("POST", "/api/v1/groups/5/servers/h:3/sweep"): {"id": 5, "server": "h:3", "removed": None},
    ("POST", "/api/v1/groups/1/promote"): {"epoch": 10, "id": 1, "servers": ["h:2", "h:1"]},
    ("GET", "/api/v1/groups/1/digest"): {"group_id": 1, "replicas": [DIGEST]},
    ("GET", "/api/v1/groups/2/digest"): {
        "group_id": 2,
        "replicas": [],
        "known": [{"server": "h:3", "resyncing": False, "reason": because("h:3 differs in 7 keys")}],
    },
    ("DELETE", "/api/v1/groups/1/digest"): {"group_id": 1, "replicas": [DIGEST]},
    ("GET", "/api/v1/rules"): {"epoch": 9, "rules": RULES, "change": {**RULES_CHANGE, "stage": "checking"}},
    ("POST", "/api/v1/rules"): {"epoch": 10, "rules": RULES, "change": RULES_CHANGE},
    ("POST", "/api/v1/rules/cancel"): {"epoch": 9, "rules": [], "change": None},
    ("GET", "/api/v1/users"): USERS,
    ("GET", "/api/v1/users/a/b"): USERS["users"][0],
    ("POST", "/api/v1/users/a/b"): USERS,
    ("POST", "/api/v1/users/.."): USERS,
    ("DELETE", "/api/v1/users/a/b"): {"users": [], "left_out": [], "behind": []},
    ("GET", "/api/v1/protection"): {"active": True, "lost": 3, "members": 5},
    ("POST", "/api/v1/pause"): {"pause": {"by": "operator ada", "at": 1.0, "why": "rebuilding"}},
    ("POST", "/api/v1/resume"): {"pause": None},
    ("POST", "/api/v1/protection/lift"): {
        "active": False,
        "lost": 3,
        "members": 5,
        "lifted": {"by": "operator ada", "at": 1.5},
    },
    ("GET", "/api/v1/sentinels"): SENTINELS,
    ("POST", "/api/v1/sentinels"): SENTINELS,
    ("DELETE", "/api/v1/sentinels/h:1"): {"failed": {"h:1": "[refused]"}},
    ("POST", "/api/v1/sentinels/resync"): {"failed": {}},
    ("DELETE", "/api/v1/proxies/3"): {"id": 3, "not_fenced": {"h:1": "[refused]"}},
    ("POST", "/api/v1/slots/assign"): {"epoch": 10, "slots": [0, 1]},
    ("POST", "/api/v1/slots/move"): {"epoch": 10, "slots": []},
    ("POST", "/api/v1/slots/offline"): {"epoch": 10, "slots": [2]},
}

VERBS: list[tuple[str, str, str]] = [
    ("status", "status", "topom: placement: 2 of 3 steps are done"),
    ("status", "status", "127.0.0.1:6378"),
    ("doctor", "doctor", "looked at 8 servers: nothing will hurt"),
    ("load", "load", "1 of 2 proxies tell their load"),
    ("load", "load", "user:[7]"),
    ("load --all-slots --proxies", "load", "70,000"),
    ("load --notable", "load/notable", "user:[red]7"),
    ("load --notable --rows 3", "load/notable?most=3", "hash 0a1b"),
    ("load --notable", "load/notable?most=10", "20,000 elements"),
    ("load --notable", "load/notable", "1,234.6 ms"),
    ("load --notable", "load/notable", "3.0 MiB"),
    ("load --notable", "load/notable", "5.0 MiB"),
    ("load --notable", "load/notable", "10.0.0.7:51234"),
    ("events", "events", "slots 0-1 were assigned to group 2"),
    ("events --since 6 --limit 1", "events", "8 to 9"),
    ("group list", "groups", "127.0.0.1:6378"),
    ("migrator list", "migrators", "carrier"),
    ("group add 5 h:1", "groups", "group 5 added"),
    ("group remove 5", "groups", "group 5 removed"),
    ("group drain 5 --why old", "groups", "group 5 leaves"),
    ("group drain 5 --cancel", "groups", "group 5 stays"),
    ("server drain h:1", "groups", "h:1 has left group 5"),
    ("server drain h:2 --why old", "groups", "server h:2 leaves group 5 once a replica has taken its place"),
    ("server drain h:1 --cancel", "groups", "server h:1 stays in group 5"),
    ("node drain host-1 --why old --fewer-copies", "nodes", "node host-1 leaves; it is gone once"),
    ("node drain host-1 --cancel", "nodes", "node host-1 stays"),
    ("server add 5 h:1", "groups", "server h:1 added to group 5"),
    ("server add 5 h:1 --wipe", "groups", "server h:1 added to group 5"),
    ("group add 5 h:1 --datacenter rome", "groups", "group 5 added"),
    ("server add 5 h:1 --datacenter rome", "groups", "server h:1 added to group 5"),
    ("server set h:1 --datacenter rome", "groups", "server h:1 is in datacenter rome"),
    ("server add 5 h:1 --node n1", "groups", "server h:1 added to group 5"),
    ("server set h:1 --node n1", "groups", "server h:1 is on node n1"),
    ("pool list", "pool", "rack3"),
    ("placement show", "placement", "missing: group 2 lacks a copy"),
    ("placement show", "placement", "would change in round 1: h:9 on node rack3 becomes a replica"),
    ("placement apply", "placement/apply", "being applied, for operator me"),
    ("placement cancel", "placement/cancel", "what it had done stays"),
    ("placement auto on", "placement/auto", "applied by itself from now on"),
    ("placement auto off", "placement/auto", "not applied by itself any more"),
    ("pool add h:9 --node rack3", "pool", "server h:9 added to the pool"),
    ("pool remove h:9", "pool", "server h:9 removed from the pool"),
    ("server remove h:1", "groups", "server h:1 removed from group 5"),
    ("server sweep h:1", "groups/5/servers/h:1/sweep", "7 keys removed from h:1"),
    ("server sweep h:3", "groups/5/servers/h:3/sweep", "keys are being removed from h:3"),
    ("group promote 1 h:2", "groups/1/promote", "h:2 is the master of group 1"),
    ("group promote 1 h:2 --force", "groups/1/promote", "h:2 is the master of group 1"),
    ("group promote 5 h:1", "groups/5/promote", "h:1 is the master of group 5 already; nothing was changed"),
    ("digest show 1", "groups/1/digest", "h:2: cancelled, 7 of 9 keys compared"),
    ("digest cancel 1", "groups/1/digest", "2 keys differ from h:1"),
    ("digest cancel 1", "groups/1/digest", "1 key was not compared"),
    ("rules list", "rules", "what is in parentheses"),
    ("rules list", "rules", "clients get TRYAGAIN for keys whose slot changes, 1,234 so far"),
    ("rules cancel", "rules/cancel", "there are no slot rules"),
    ("rules add bull:(*):*", "rules", "queues"),
    ("rules remove bull:*", "rules", "bull:(*):*"),
    ("user list", "users", "databases=0,3 read_only=true"),
    ("user list", "users", "proxy 3 leaves out user a/b: that proxy has a user of this name itself"),
    ("user list", "users", "proxy 4 does not use these users: it is not [connected]"),
    ("user set a/b read_only=true", "users/a%2Fb", "user a/b is set"),
    ("user set .. read_only=true", "users/%2E%2E", "user .. is set"),
    ("user remove a/b", "users/a%2Fb", "user a/b removed"),
    ("protection show", "protection", "nothing is done by itself; 3 of 5 members lost"),
    ("protection off", "protection/lift", "protection is off"),
    ("protection off", "protection/lift", "operator ada lifted it at 19"),
    ("pause --why rebuilding", "pause", "operator ada paused topom at 19"),
    ("resume", "resume", "topom acts by itself"),
    ("sentinel list", "sentinels", "127.0.0.1:7001"),
    ("sentinel add h:1", "sentinels", "sentinel h:1 added"),
    ("sentinel remove h:1", "sentinels", "h:1 could not be told: [refused]"),
    ("sentinel resync", "sentinels/resync", "watch the groups again"),
    ("proxy list", "proxies", "1,234,567"),
    ("proxy drain 3", "proxies", "proxy 3 at 127.0.0.1:6380 leaves; it is gone once it has let 5 clients go"),
    ("proxy reload", "proxies/reload", "proxy 3 at 127.0.0.1:6380: /etc/[topom].toml, read at "),
    ("proxy reload 3", "proxies/3/reload", ": token, users changed"),
    (
        "proxy reload 3",
        "proxies/3/reload",
        "the environment has another value of these, and wins over the file: password",
    ),
    ("settings reload", "settings/reload", ": nothing changed"),
    ("settings show", "settings", "these differ in the file, and need a restart: listen, url"),
    ("proxy remove 3 --force", "proxies", "could not be cut off h:1: [refused]"),
    ("slot list", "slots", "1-2"),
    ("slot list", "slots", "a[1]\\x1b, 2.0 KiB"),
    ("slot list --each", "slots", "2.9 KiB"),
    ("sizing show", "sizes", "2.9 KiB in 4 keys, measured 2 h 30 min ago"),
    ("sizing show", "sizes", "[b]a\\x1b:       2.0 KiB  66.7%     2\n(no separator)  500 B    16.7%     1\n"),
    ("slot assign 0-1 --to 2", "slots", "assigned to group 2: slots 0-1"),
    ("slot move 0-1 --to 2", "slots", "on the way to group 2: nothing to change"),
    ("slot offline 2", "slots", "offline: slot 2"),
    ("rebalance --dry-run", "rebalance", "2 slots would move"),
    ("rebalance --policy bytes --drain 1 --drain 3 --capacity 2=1.5 --most-slots 9", "rebalance", "would move"),
    ("migration show", "migration", "waits for [proxy 3]"),
    ("migration pause", "migration", "paused"),
    ("migration resume", "migration", "goes on"),
    ("migration cancel", "migration", "on the way back: slot 3"),
    ("migration cancel --slots 0-3", "migration", "too late, they have moved: slot 2"),
    ("migration cancel --slots 0-1", "migration", "cancelled before anything moved: slots 0-1"),
    ("migration skip --slots 0-1", "migration", "skipped: slots 0-1"),
    ("migration retry --slots 0-1", "migration", "tried again; no longer skipped: slots 0-1"),
    ("migration show", "migration", "skipped: slots 7-8: target h:1 is full"),
    ("slot list", "slots", "no room at all"),
    ("migration set --keys-per-second 9", "migration", "parallel_slots"),
]
runner = CliRunner()


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[httpx.Request]:
    """What topom was asked, by verbs that reach the topom played here."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.headers.get("Authorization") != "Bearer right":
            return httpx.Response(401, json={"error": "Unauthorized", "message": "no"})
        found = ANSWERS.get((request.method, request.url.path))
        if found is None:
            return httpx.Response(404, json={"error": "NotFound", "message": "there is no such thing"})
        return httpx.Response(200, json=found)

    monkeypatch.setenv("SLOTFERRY_TOKEN", "right")
    monkeypatch.delenv("SLOTFERRY_TOPOM", raising=False)
    return play_topom(monkeypatch, answer)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"silent": "it did not answer within 6 s"}, "it did not answer within 6 s"),
        ({"refused": "Setting users is odd."}, "cannot be used, and nothing has changed: Setting users is odd."),
        ({"following": 1}, "so far 1 of 2 workers say that they use them"),
    ],
)
def test_a_proxy_that_has_not_taken_its_settings_is_told_and_the_status_is_1(
    seen: list[httpx.Request], monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], says: str
) -> None:
    monkeypatch.setitem(ANSWERS, ("POST", "/api/v1/proxies/3/reload"), {**PROXY_RELOADED, **change})
    result = runner.invoke(app, ["proxy", "reload", "3"])
    assert result.exit_code == 1
    assert says in result.stdout


def test_each_topom_that_is_named_is_asked_for_itself(seen: list[httpx.Request]) -> None:
    result = runner.invoke(app, ["settings", "reload", "--topom", "http://a:1,http://b:2", "-o", "json"])
    assert result.exit_code == 0
    assert [str(request.url) for request in seen] == [
        f"http://{host}/api/v1/settings/reload" for host in ("a:1", "b:2")
    ]
    assert [one["topom"] for one in json.loads(result.stdout)["topoms"]] == ["http://a:1", "http://b:2"]
    wrong = runner.invoke(app, ["settings", "reload", "--topom", "http://a:1,http://b:2", "--token", "wrong"])
    assert wrong.exit_code == 1
    assert wrong.stdout.count("does not accept the token") == 2


@pytest.mark.parametrize("line", ["group add 5 h:1 h:2", "server add 5 h:2", "pool add h:9"])
def test_keys_are_wiped_only_by_an_operators_word(seen: list[httpx.Request], line: str) -> None:
    for option in ("", " --wipe"):
        assert runner.invoke(app, (line + option).split()).exit_code == 0
        assert json.loads(seen[-1].content).get("wipe", False) is bool(option)


@pytest.mark.parametrize(("line", "family", "expected"), VERBS, ids=[verb[0] for verb in VERBS])
def test_a_verb_says_what_it_did(seen: list[httpx.Request], line: str, family: str, expected: str) -> None:
    result = runner.invoke(app, line.split())
    assert result.exit_code == 0, result.output
    assert expected in result.stdout
    assert f"/api/v1/{family}" in str(seen[-1].url)


def test_the_biggest_prefixes_are_shown_and_no_more(seen: list[httpx.Request]) -> None:
    said = runner.invoke(app, ["sizing", "show"]).stdout
    assert [f"of{number}: " in said for number in range(20)] == [number < MOST_PREFIXES - 2 for number in range(20)]


@pytest.mark.parametrize(("line", "family", "expected"), VERBS, ids=[verb[0] for verb in VERBS])
def test_a_verb_prints_one_line_of_json(seen: list[httpx.Request], line: str, family: str, expected: str) -> None:
    result = runner.invoke(app, [*line.split(), "-o", "json"])
    assert result.exit_code == 0, result.output
    assert result.stdout.count("\n") == 1
    assert json.loads(result.stdout) == ANSWERS[seen[-1].method, seen[-1].url.path]


@pytest.mark.parametrize(("line", "family", "expected"), VERBS[::7], ids=[verb[0] for verb in VERBS[::7]])
def test_a_verb_prints_yaml(seen: list[httpx.Request], line: str, family: str, expected: str) -> None:
    result = runner.invoke(app, [*line.split(), "--output", "yaml"])
    assert result.exit_code == 0, result.output
    assert yaml.safe_load(result.stdout) == ANSWERS[seen[-1].method, seen[-1].url.path]


def test_every_verb_that_asks_topom_takes_the_same_forms() -> None:
    def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
        yield name, command
        for below, one in getattr(command, "commands", {}).items():
            yield from commands(one, f"{name} {below}".strip())

    for name, command in commands(typer.main.get_command(app), ""):
        options = {option: parameter for parameter in command.params for option in parameter.opts}
        if "--topom" in options and name != "top":
            assert "--json" not in options
            assert options["-o"] is options["--output"], name
            wrong = runner.invoke(app, [*name.split(), "--output", "xml"])
            assert wrong.exit_code == 2, name


def test_no_notable_requests_are_said_in_words(seen: list[httpx.Request], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ANSWERS, ("GET", "/api/v1/load/notable"), {"since": 50.0, "requests": []})
    result = runner.invoke(app, ["load", "--notable"])
    assert result.exit_code == 0, result.output
    assert "no big keys and no slow commands since 1970-01-01" in result.stdout


def test_a_placement_with_nothing_to_do_is_no_error(seen: list[httpx.Request], monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/api/v1/placement/apply"
    monkeypatch.setitem(ANSWERS, ("POST", path), {**ANSWERS["POST", path], "run": None})
    result = runner.invoke(app, ["placement", "apply"])
    assert (result.exit_code, result.stdout) == (0, "nothing to do: everything is as it should be\n")


def test_what_an_earlier_topom_found_is_shown_too(seen: list[httpx.Request]) -> None:
    result = runner.invoke(app, ["digest", "show", "2"])
    assert result.exit_code == 1
    assert "h:3 differs in 7 keys" in result.stdout


def test_every_verb_of_the_help_is_tested() -> None:
    served = {"topom", "local", "demo", "config", "plan", "import", "top", "context"}
    named = {verb[0].split()[0] for verb in VERBS}
    groups = {group.name for group in app.registered_groups}
    assert groups | {command.name for command in app.registered_commands} == named | served


LOOKS: list[tuple[str, str, Any]] = [
    ("user show a/b", "kept, not shown", USERS["users"][0]),
    ("group show 1", "127.0.0.1:6378", STATUS["groups"][0]),
    ("server list", "127.0.0.1:6378", {"servers": SERVERS_OF_GROUPS}),
    ("server show 127.0.0.1:6379", "2.0 KiB", SERVERS_OF_GROUPS[0]),
    ("proxy show 3", "1,234,567", PROXY),
    ("node list", "rack3", {"nodes": PLACEMENT["nodes"]}),
    ("node show rack3", "1, 2", PLACEMENT["nodes"][0]),
    ("slot show 2", "a[1]\\x1b", SLOTS["slots"][2]),
    ("slot show 3", "no room at all", SLOTS["slots"][3]),
]


@pytest.mark.parametrize(("line", "expected", "answer"), LOOKS, ids=[look[0] for look in LOOKS])
def test_one_thing_is_shown_and_many_are_listed(
    seen: list[httpx.Request], line: str, expected: str, answer: Any
) -> None:
    said = runner.invoke(app, line.split())
    assert said.exit_code == 0, said.output
    assert expected in said.stdout
    assert json.loads(runner.invoke(app, [*line.split(), "-o", "json"]).stdout) == answer


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("group show 7", "there is no group 7; there are: 1, 2, 5"),
        ("server show h:9", "there is no server h:9 in a group; there are: 127.0.0.1:6379, 127.0.0.1:6378, h:1"),
        ("server drain h:9", "there is no server h:9 in a group; there are: 127.0.0.1:6379, 127.0.0.1:6378, h:1"),
        ("server remove h:9", "there is no server h:9 in a group; there are: 127.0.0.1:6379, 127.0.0.1:6378, h:1"),
        ("proxy show 7", "there is no proxy 7; there are: 3"),
        ("node show rack9", "there is no node rack9; there are: rack3"),
        ("slot show 9", "there is no slot 9; the last one is 3"),
    ],
)
def test_what_is_not_there_cannot_be_shown(seen: list[httpx.Request], line: str, expected: str) -> None:
    said = runner.invoke(app, line.split())
    assert (said.exit_code, said.stdout) == (1, "")
    assert expected in said.stderr


def test_every_family_has_one_word_for_looking() -> None:
    """`show` is for one thing, `list` for many; a family that only runs or only changes something has neither."""
    verbs = {
        group.name: {command.name for command in group.typer_instance.registered_commands if group.typer_instance}
        for group in app.registered_groups
    }
    assert {name for name, known in verbs.items() if not known & {"show", "list"}} == {"import", "config"}
    many = {"group", "server", "proxy", "node", "slot", "context", "user"}
    assert {name for name, known in verbs.items() if {"show", "list"} <= known} == many | {"sizing"}
    assert {name for name, known in verbs.items() if "drain" in known} == {"group", "server", "node", "proxy"}
    other_words = {"status", "info", "get", "describe", "ls", "biggest", "sizes"}
    assert not other_words & {verb for known in verbs.values() for verb in known}


@pytest.mark.parametrize("line", ["events", "proxy list", "group list", "server list", "migrator list"])
def test_a_list_is_no_wider_than_the_terminal(
    seen: list[httpx.Request], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = {
        ("GET", "/api/v1/events"): {
            "oldest": 1,
            "newest": 1234567,
            "events": [{**EVENT, "id": 1234567, "who": "administrator@machine-17.rack-3.example.com (operator)"}],
        },
        ("GET", "/api/v1/proxies"): {
            "proxies": [{**PROXY, "address": "192.168.100.200:26380", "hostname": "machine-17.rack-3.example.com"}]
        },
    }
    for place, answer in long.items():
        monkeypatch.setitem(ANSWERS, place, answer)
    printed = io.StringIO()
    monkeypatch.setattr(output, "out", Console(file=printed, width=80, soft_wrap=True))
    assert runner.invoke(app, line.split()).exit_code == 0
    lines = printed.getvalue().splitlines()
    assert len(lines) >= 2
    assert [one for one in lines if len(one.rstrip()) > 80] == []


def test_topom_is_told_who_asks(seen: list[httpx.Request]) -> None:
    assert runner.invoke(app, ["status"]).exit_code == 0
    assert seen[0].headers["X-Slotferry-User"].endswith(f"@{socket.gethostname()}")


def test_address_and_token_by_option_go_before_the_environment(
    seen: list[httpx.Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLOTFERRY_TOPOM", "http://environment:1")
    assert runner.invoke(app, ["status"]).exit_code == 0
    assert runner.invoke(app, ["status", "--topom", "http://option:2", "--token", "other"]).exit_code == 1
    assert [request.url.host for request in seen] == ["environment", "option"]
    assert seen[1].headers["Authorization"] == "Bearer other"


@pytest.mark.parametrize("line", ["status", "status --output json"])
def test_a_wrong_token_is_a_sentence_and_a_status(seen: list[httpx.Request], line: str) -> None:
    result = runner.invoke(app, [*line.split(), "--token", "wrong"])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "does not accept the token" in result.stderr
    assert "Traceback" not in result.stderr
    assert "wrong" not in result.stderr


@pytest.mark.parametrize(
    ("number", "says"), [(1, "1 setting of its file needs a restart"), (2, "2 settings of its file need a restart")]
)
def test_a_proxy_whose_settings_need_a_restart_is_told(
    seen: list[httpx.Request], monkeypatch: pytest.MonkeyPatch, number: int, says: str
) -> None:
    one = {**PROXY, "counters": {"settings_restart": number}}
    monkeypatch.setitem(ANSWERS, ("GET", "/api/v1/status"), {**STATUS, "proxies": [one]})
    assert f"proxy 3: {says}; its log names" in runner.invoke(app, ["status"]).stdout


def test_no_token_is_not_taken_for_a_wrong_one(seen: list[httpx.Request], tmp_path: Path) -> None:
    said = runner.invoke(app, ["status"], env={"SLOTFERRY_TOKEN": "", "XDG_CONFIG_HOME": str(tmp_path)})
    assert (said.exit_code, said.stdout) == (1, "")
    assert "wants a token; give one by --token" in said.stderr


def test_a_refusal_is_topoms_sentence(seen: list[httpx.Request]) -> None:
    result = runner.invoke(app, ["group", "remove", "9"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "there is no such thing" in result.stderr


def test_nobody_there() -> None:
    result = runner.invoke(app, ["status", "--topom", "http://127.0.0.1:1"])
    assert result.exit_code == 1
    assert "check that it runs" in result.stderr


def test_what_a_verb_asks_for(seen: list[httpx.Request]) -> None:
    for line, body in (
        ("migration cancel", {"slots": None}),
        ("migration cancel --slots 0-3", {"slots": "0-3"}),
        ("migration skip --slots 5", {"slots": "5"}),
        ("migration retry", {"slots": None}),
    ):
        assert runner.invoke(app, line.split()).exit_code == 0
        assert json.loads(seen[-1].content) == body
    assert runner.invoke(app, ["migration", "skip"]).exit_code == 2, "all slots are not skipped by omission"


def test_setting_nothing_is_wrong_usage(seen: list[httpx.Request]) -> None:
    result = runner.invoke(app, ["migration", "set"])
    assert result.exit_code == 2
    assert not seen


def test_hours_and_latency_goal_go_to_topom_as_they_were_given(seen: list[httpx.Request]) -> None:
    arguments = ["--latency-goal-milliseconds", "2.5", "--hours", "22:00-06:00", "--time-zone", ""]
    result = runner.invoke(app, ["migration", "set", *arguments])
    assert result.exit_code == 0, result.output
    assert json.loads(seen[-1].content) == {"latency_goal_milliseconds": 2.5, "hours": "22:00-06:00", "time_zone": ""}


def test_how_a_move_is_held_back_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    source = {
        "address": "h:1",
        "p99_milliseconds": 12.34,
        "quiet_p99_milliseconds": 1.04,
        "allowed_milliseconds": 5.0,
    }
    target = {"address": "h:2", "p99_milliseconds": None, "quiet_p99_milliseconds": None, "allowed_milliseconds": 5.5}
    pacing = {
        "speed": 0.312,
        "source": source,
        "target": target,
        "reason": because("held back to 31%: [source] h:1 is slow"),
    }
    held = {**MIGRATION, "batches": [{**BATCH, "pacing": pacing}]}
    say_migration(held)
    shown = capsys.readouterr().out
    assert "held back to 31%: [source] h:1 is slow" in shown
    assert "12.3 (quiet 1.0)" in shown
    assert "5.0 and 5.5" in shown
    assert "31%" in shown.replace("held back to 31%", "")


def test_what_a_batch_waits_for_is_shown_beside_its_notes(capsys: pytest.CaptureFixture[str]) -> None:
    say_migration({**MIGRATION, "batches": [{**BATCH, "notes": ["by the stream: it is faster", "follows master s:1"]}]})
    shown = capsys.readouterr().out
    assert "waits for [proxy 3]; by the stream: it is faster; follows master s:1" in " ".join(shown.split())


def test_why_moving_is_halted_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    reason = "migration is outside its hours, 22:00-06:00; it goes on at 2026-02-10 22:00+01:00"
    halted = {"kind": "hours", "what": reason, "since": 0.0, "to_do": ""}
    say_migration({**MIGRATION, "halted": halted, "batches": [{**BATCH, "reason": halted}]})
    first_line = capsys.readouterr().out.splitlines()[0]
    assert first_line.count(reason) == 1
    assert "keys/s" not in first_line


def test_help_and_version() -> None:
    result = runner.invoke(app, ["--help"])
    assert result.exit_code == 0
    for word in ("proxy", "topom", "local", "demo", "status", "group", "server", "slots", "rebalance", "migration"):
        assert word in result.stdout
    assert runner.invoke(app, ["--version"]).stdout == f"slotferry {__version__}\n"


# Waiting for moves


def topom_showing(*tables: list[dict[str, Any]], **migration: Any) -> TopomClient:
    """A topom that shows these lists of slots one after the other, and then the last one for ever."""
    left = list(tables)

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/migration"):
            return httpx.Response(200, json=MIGRATION | migration)
        return httpx.Response(200, json={"epoch": 1, "slots": left.pop(0) if len(left) > 1 else left[0]})

    return TopomClient("http://topom.test", "x", httpx.MockTransport(handler))


def slot(group_id: int, target_id: int = 0) -> list[dict[str, Any]]:
    return [{"id": 7, "group_id": group_id, "action": {"state": "migrating", "target_id": 2} if target_id else {}}]


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(waiting, "LINE_SECONDS", 0.01)


@pytest.mark.usefixtures("_impatient")
async def test_waiting_ends_when_all_slots_rest_in_their_group(capfd: pytest.CaptureFixture[str]) -> None:
    async with topom_showing(slot(1, 2), slot(1, 2), slot(2)) as topom:
        await asyncio.wait_for(wait_moved(topom, {7: 2}, 60), 60)


@pytest.mark.usefixtures("_impatient")
async def test_waiting_has_a_limit_and_says_that_the_move_goes_on() -> None:
    async with topom_showing(slot(1, 2)) as topom:
        with pytest.raises(WaitedTooLong, match=r"1 of 1 slots have not moved .* the move goes on"):
            await wait_moved(topom, {7: 2}, 0.05)


@pytest.mark.usefixtures("_impatient")
async def test_waiting_ends_when_the_move_was_called_off() -> None:
    async with topom_showing(slot(1, 2), slot(1)) as topom:
        with pytest.raises(MoveAbandoned, match="slot 7 is at rest in group 1 instead of group 2"):
            await wait_moved(topom, {7: 2}, 5)


@pytest.mark.usefixtures("_impatient")
async def test_waiting_outlives_a_restart_of_topom() -> None:
    answers: list[Callable[[], httpx.Response]] = []

    def refuse() -> httpx.Response:
        raise httpx.ConnectError("refused")

    answers += [refuse, refuse, lambda: httpx.Response(200, json={"epoch": 1, "slots": slot(2)})]

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/migration"):
            return httpx.Response(200, json=MIGRATION)
        return answers.pop(0)()

    async with TopomClient("http://topom.test", "x", httpx.MockTransport(handler)) as topom:
        await wait_moved(topom, {7: 2}, 5)
    assert not answers


@pytest.mark.usefixtures("_impatient")
async def test_waiting_outlives_an_election() -> None:
    refusal = {"error": "NotLeading", "message": "no topom leads at present; try again in a while"}
    answers = [httpx.Response(503, json=refusal), httpx.Response(200, json={"epoch": 1, "slots": slot(2)})]

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/migration"):
            return httpx.Response(200, json=MIGRATION)
        return answers.pop(0)

    async with TopomClient("http://topom.test", "x", httpx.MockTransport(handler)) as topom:
        await wait_moved(topom, {7: 2}, 5)
    assert not answers


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("resting", [1, 2])
async def test_waiting_goes_by_no_table_from_before_the_move(resting: int) -> None:
    """A topom that follows has not read the move yet, and later another one is behind what was seen."""
    tables = [(4, slot(resting)), (5, slot(1, 2)), (7, slot(1, 2)), (6, slot(resting)), (8, slot(2))]
    left = list(tables)

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/migration"):
            return httpx.Response(200, json=MIGRATION | {"epoch": 5})
        epoch, slots = left.pop(0)
        return httpx.Response(200, json={"epoch": epoch, "slots": slots})

    async with TopomClient("http://topom.test", "x", httpx.MockTransport(handler)) as topom:
        await wait_moved(topom, {7: 2}, 5)
    assert not left


@pytest.mark.usefixtures("_impatient")
async def test_waiting_goes_by_the_table_that_has_the_change_and_no_older_one() -> None:
    """Also if the topom that led is gone by now, and another one that does not know of the move yet is asked."""
    left = [(4, slot(1)), (4, slot(1)), (5, slot(1, 2)), (6, slot(2))]

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/migration"):
            return httpx.Response(200, json=MIGRATION | {"epoch": left[0][0]})
        epoch, slots = left.pop(0)
        return httpx.Response(200, json={"epoch": epoch, "slots": slots})

    async with TopomClient("http://topom.test", "x", httpx.MockTransport(handler)) as topom:
        await wait_moved(topom, {7: 2}, 5, epoch=5)
    assert not left


@pytest.mark.usefixtures("_impatient")
async def test_a_slot_that_has_arrived_is_waited_for_no_more() -> None:
    """topom may send it on at once, by itself."""
    other = {"id": 8, "group_id": 1, "action": {"state": "migrating", "target_id": 2}}
    there = {"id": 8, "group_id": 2, "action": {}}
    async with topom_showing([*slot(2), other], [*slot(2, 3), other], [*slot(3), there]) as topom:
        await wait_moved(topom, {7: 2, 8: 2}, 5)


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("arguments", [["slot", "move", "7", "--to", "2"], ["migration", "cancel"], ["rebalance"]])
@pytest.mark.parametrize("path", ["/slots", "/migration"])
def test_every_wait_bears_a_topom_that_is_away_for_a_moment(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], path: str
) -> None:
    """It may be that nobody answers, that no topom leads, or that what stands before topom finds none."""
    away: list[Callable[[], httpx.Response]] = []

    def nobody() -> httpx.Response:
        raise httpx.ConnectError("refused")

    away += [nobody, lambda: httpx.Response(502, text="<html>"), lambda: httpx.Response(503, json={"error": "Store"})]
    changed = {"epoch": 1, "slots": [7], "returning": [7], "ended": [], "too_late": [], "dry_run": False, "cost": None}
    changed |= {"moves": [{"slot": 7, "from": 1, "to": 2}], "policy": "codis"}

    def handler(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return httpx.Response(200, json=changed)
        if request.url.path.endswith(path) and away:
            return away.pop(0)()
        if request.url.path.endswith("/migration"):
            return httpx.Response(200, json=MIGRATION)
        slots = [{"id": number, "group_id": 2, "action": {}} for number in range(8)]
        return httpx.Response(200, json={"epoch": 1, "slots": slots})

    play_topom(monkeypatch, handler)
    result = runner.invoke(app, [*arguments, "--wait", "--timeout", "20", "--topom", "http://topom.test"])
    assert result.exit_code == 0, result.output
    assert not away


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("arguments", [["run", "1"], ["run", "1", "--slots"], ["resync", "1"]])
def test_a_wait_for_a_digest_bears_a_topom_that_is_away_for_a_moment(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr(digest, "POLL_SECONDS", 0.01)
    running = {"group_id": 1, "replicas": [DIGEST | {"stage": "running", "resyncing": True}], "known": []}
    over = {"group_id": 1, "replicas": [DIGEST | {"stage": "same", "resyncing": False}], "known": []}
    away = {"error": "NotLeading", "message": "no topom leads at present; try again in a while"}
    answers = [(200, running), (503, away), (502, {}), (200, over), *[(200, over)] * ("--slots" in arguments)]

    def handler(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return httpx.Response(202, json={**running, "servers": ["h:2"]})
        status, said = answers.pop(0)
        return httpx.Response(status, json=said)

    play_topom(monkeypatch, handler)
    result = runner.invoke(app, ["digest", *arguments, "--topom", "http://topom.test"])
    assert result.exit_code == 0, result.output
    assert not answers


def test_a_check_that_was_lost_with_its_topom_is_not_taken_for_one_that_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The group may have a stored difference, so the topom that leads by now has an answer."""
    running = {"group_id": 1, "replicas": [DIGEST | {"stage": "running"}], "known": []}

    def handler(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=running if request.method == "POST" else {**running, "replicas": []})

    play_topom(monkeypatch, handler)
    result = runner.invoke(app, ["digest", "run", "1", "--topom", "http://topom.test"])
    assert result.exit_code == 1
    assert "the check of h:2 is over without an outcome" in " ".join(result.output.split())


@pytest.mark.usefixtures("_impatient")
async def test_the_limit_holds_although_topom_hangs() -> None:
    async def hang(request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with TopomClient("http://topom.test", "x", httpx.MockTransport(hang)) as topom:
        with pytest.raises(WaitedTooLong, match=r"1 of 1 slots have not moved after 0.1 s"):
            await asyncio.wait_for(wait_moved(topom, {7: 2}, 0.1), 20)


def waiting_slot(number: int, state: str, reason: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    said = {"reason": reason} if reason else {}
    return {"id": number, "group_id": 1, "action": {"state": state, "target_id": 2}, **said, **more}


FULL = {**because("h:1 is full", "raise its maxmemory"), "kind": "server"}
GOES = {**MIGRATION, "halted": None}


@pytest.mark.parametrize(
    ("left", "migration", "expected"),
    [
        ([waiting_slot(7, "migrating", FULL)], GOES, "raise its maxmemory"),
        ([waiting_slot(7, "pending", FULL), waiting_slot(8, "pending")], GOES, "h:1 is full"),
        ([waiting_slot(7, "pending", because("an operator wanted it so"), skipped=True)], GOES, "skipped: an operator"),
        ([waiting_slot(7, "pending")], {**GOES, "paused": True}, "slotferry migration resume"),
        ([waiting_slot(7, "pending")], {**GOES, "halted": {**FULL, "kind": "paused"}}, "raise its maxmemory"),
        # Something goes on, or ends by itself.
        ([waiting_slot(7, "migrating", FULL), waiting_slot(8, "migrating")], GOES, ""),
        ([waiting_slot(7, "migrating", FULL), waiting_slot(8, "migrating", because("soon"))], GOES, ""),
        ([waiting_slot(7, "migrating", because("a proxy has yet to answer"))], GOES, ""),
        ([waiting_slot(7, "pending", {**FULL, "kind": "busy"})], GOES, ""),
        ([waiting_slot(7, "pending")], {**GOES, "halted": {**FULL, "kind": "hours"}}, ""),
        ([waiting_slot(7, "pending")], GOES, ""),
    ],
)
def test_a_move_is_stuck_where_only_an_operator_can_help(
    left: list[dict[str, Any]], migration: dict[str, Any], expected: str
) -> None:
    standstill = Standstill()
    assert standstill.reason(100.0, left, migration) == ""
    assert standstill.reason(100.0 + STUCK_SECONDS / 2, left, migration) == ""
    said = standstill.reason(100.0 + STUCK_SECONDS, left, migration)
    assert expected in said if expected else said == ""


def test_a_move_that_gets_on_is_not_stuck() -> None:
    standstill = Standstill()
    one, two = waiting_slot(7, "migrating", FULL), waiting_slot(8, "migrating", FULL)
    assert standstill.reason(0.0, [one, two], GOES) == ""
    assert standstill.reason(STUCK_SECONDS, [one], GOES) == ""
    moving = {**GOES, "batches": [{**BATCH, "slots": "7-8", "keys_moved": 5000}]}
    assert standstill.reason(2 * STUCK_SECONDS - 1, [one], moving) == ""
    assert standstill.reason(3 * STUCK_SECONDS - 2, [one], moving) == ""
    assert "h:1 is full" in standstill.reason(3 * STUCK_SECONDS, [one], moving)


def test_a_move_is_stuck_although_slots_of_others_move() -> None:
    standstill = Standstill()
    one = waiting_slot(7, "migrating", FULL)
    for second in range(int(STUCK_SECONDS)):
        batches = [{**BATCH, "slots": "7", "keys_moved": 5}, {**BATCH, "slots": "1-2", "keys_moved": second}]
        assert standstill.reason(second, [one], {**GOES, "keys_moved": second, "batches": batches}) == ""
    assert "h:1 is full" in standstill.reason(STUCK_SECONDS, [one], {**GOES, "keys_moved": 99, "batches": batches})


@pytest.mark.usefixtures("_impatient")
async def test_waiting_ends_with_the_reason_when_the_move_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "STUCK_SECONDS", 0.05)
    async with topom_showing([waiting_slot(7, "migrating", FULL)]) as topom:
        with pytest.raises(MoveStuck, match=r"1 of 1 slots do not move.*h:1 is full.*raise its maxmemory.*cancel"):
            await wait_moved(topom, {7: 2}, 60)


@pytest.mark.usefixtures("_impatient")
async def test_waiting_for_an_earlier_topom_goes_by_the_tables_that_were_seen() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/migration"):
            return httpx.Response(200, json={name: said for name, said in MIGRATION.items() if name != "epoch"})
        return httpx.Response(200, json={"epoch": 1, "slots": slot(2)})

    async with TopomClient("http://topom.test", "x", httpx.MockTransport(handler)) as topom:
        await wait_moved(topom, {7: 2}, 5)


def test_slots_are_chosen_by_ranges_and_by_size(seen: list[httpx.Request]) -> None:
    def shown(*arguments: str) -> list[int]:
        result = runner.invoke(app, ["slot", "list", *arguments, "-o", "json"])
        assert result.exit_code == 0, result.output
        return [slot["id"] for slot in json.loads(result.stdout)["slots"]]

    assert shown("1-2") == [1, 2]
    assert shown("--top", "2") == [2, 0]
    assert shown("0,3", "--top", "5") == [0, 3]
    wrong = runner.invoke(app, ["slot", "list", "9"])
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert "is not within 0-3" in wrong.stderr


def test_the_biggest_keys(seen: list[httpx.Request]) -> None:
    result = runner.invoke(app, ["sizing", "list", "-o", "json"])
    key = {"slot": 2, "group_id": 1, "key": "a[1]\x1b", "database": 3, "type": "hash", "bytes": 2048}
    assert json.loads(result.stdout) == {"keys": [key]}
    assert "a[1]\\x1b" in runner.invoke(app, ["sizing", "list"]).stdout
    assert "had no keys" in runner.invoke(app, ["sizing", "list", "0"]).stdout
    assert seen[0].url.params["biggest"] == "10"


def test_a_plan_says_what_it_could_not_do(seen: list[httpx.Request], monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"reasons": ["slot 3 alone is larger than a share"], "warnings": ["sizes are stale"]}
    monkeypatch.setitem(
        ANSWERS, ("POST", "/api/v1/rebalance"), {"policy": "bytes", "dry_run": True, "moves": [], **said}
    )
    result = runner.invoke(app, ["rebalance", "--dry-run"])
    assert result.stdout == "nothing to move\nslot 3 alone is larger than a share\n"
    assert "sizes are stale" in result.stderr


@pytest.mark.parametrize("capacity", ["3", "x=1", "3=", "=1"])
def test_a_capacity_that_is_none(seen: list[httpx.Request], capacity: str) -> None:
    result = runner.invoke(app, ["rebalance", "--capacity", capacity])
    assert result.exit_code == 2
    assert seen == []


def test_what_only_a_leader_knows_is_said_to_be_unknown(
    seen: list[httpx.Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = {"address": "h:1", "role": "master", "up": True, "condition": "unknown", "silent": 0, "views": 0}
    unknown = {"active": None, "lost": None, "members": None}
    status = {**STATUS, "groups": [{"id": 1, "slots": 3, "servers": [server]}], "protection": unknown}
    monkeypatch.setitem(ANSWERS, ("GET", "/api/v1/status"), status)
    monkeypatch.setitem(ANSWERS, ("GET", "/api/v1/protection"), unknown)
    assert "up, condition unknown" in runner.invoke(app, ["status"]).stdout
    assert "is not known" in runner.invoke(app, ["protection", "show"]).stdout


def test_a_master_that_says_that_it_is_a_replica_is_shown_as_one(
    seen: list[httpx.Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = [{"address": "h:1", "role": "replica", "up": True}, {"address": "h:2", "role": "master", "up": True}]
    groups = [{"id": 1, "slots": 3, "servers": servers}, {"id": 2, "slots": 1, "servers": [{"address": "h:3"}]}]
    monkeypatch.setitem(ANSWERS, ("GET", "/api/v1/status"), {**STATUS, "groups": groups})
    monkeypatch.setitem(ANSWERS, ("GET", "/api/v1/groups"), {"epoch": 9, "groups": groups})
    said = runner.invoke(app, ["status"]).stdout
    roles = {line.split("h:")[1][0]: line.split("h:")[1].split()[1] for line in said.splitlines() if " h:" in line[:16]}
    assert roles == {"1": "replica", "2": "master", "3": "master"}
    assert "group 1: its master h:1 says that it is a replica" in said
    assert "slotferry group promote 1 HOST:PORT --force" in said
    listed = json.loads(runner.invoke(app, ["server", "list", "-o", "json"]).stdout)["servers"]
    assert [server["role"] for server in listed] == ["replica", "master", "master"]


def test_the_status_lists_migrators(seen: list[httpx.Request]) -> None:
    said = runner.invoke(app, ["status"]).stdout
    [line] = [line for line in said.splitlines() if "carrier" in line]
    assert line.split() == ["1", "carrier", "77", "topom", "-", "d1", "1", "123,457", "3.0", "GiB"]


async def test_the_bar_is_there_whatever_the_details_say() -> None:
    drawn = io.StringIO()
    console = Console(file=drawn, width=80, force_terminal=True, no_color=True)
    progress = waiting._Moving(TextColumn("{task.description}"), BarColumn(), console=console)
    progress.add_task("moving", total=2, completed=1)
    progress.detail = "waits for a proxy; " * 20
    console.print(progress.get_renderable())
    first, *below = drawn.getvalue().splitlines()
    assert first.startswith("moving")
    assert first.count("━") == 20
    assert "waits for a proxy" in below[0]


@pytest.mark.parametrize(
    ("groups", "assigned", "proxies", "expected"),
    [
        ([], 0, [], "slotferry group add 1 HOST:PORT"),
        ([{"id": 7, "servers": []}], 0, [], "slotferry server add 7 HOST:PORT"),
        ([{"id": 7, "servers": [{}]}], 0, [], "slotferry slot assign 0-15 --to GROUP"),
        ([{"id": 7, "servers": [{}]}], 16, [], "slotferry proxy"),
    ],
)
def test_a_cluster_that_lacks_something_says_what_to_do_next(
    groups: list[Any], assigned: int, proxies: list[Any], expected: str
) -> None:
    found = {"groups": groups, "proxies": proxies, "number_of_slots": 16, "slots": {"assigned": assigned}}
    assert next_step(found).endswith(expected)
    assert next_step({**found, "groups": [{"id": 7, "servers": [{}]}], "slots": {"assigned": 1}, "proxies": [1]}) == ""
