"""What a played topom answers, by method and path."""

from typing import Any


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
