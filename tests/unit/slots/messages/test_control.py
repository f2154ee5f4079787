"""Every message of the control stream comes over whole, and what breaks a limit is refused."""

import json
from typing import Any

import pytest

from slots.limitshares import WHOLE
from slots.messages import control
from slots.messages.control import ProxyMessage, TopomMessage, parse_proxy, parse_topom
from slots.messages.load import (
    KEY_BYTES,
    MOST_HOT_KEYS,
    MOST_LIMITED,
    MOST_NOTABLE,
    MOST_USERS,
    Connections,
    HeldShare,
    HotKey,
    Notable,
    ServerTraffic,
    Share,
    Traffic,
)
from slots.messages.message import (
    MOST_COUNTERS,
    MOST_PROXIES,
    MOST_SERVERS,
    MOST_TEXT,
    ListedProxy,
    Message,
    MessageError,
    Product,
    encode,
)
from slots.slot import MAXIMUM_SLOTS
from tests.unit.slots.messages.samples import kinds_of, untried, with_field

NOTABLE = Notable(
    "big_collection", "hgetall", 0, 17, "bGlrZXM=", 5, "alice", "10.0.0.7:51234", "10.0.0.2:6379", 1.5, 900.5, 30, 70, 9
)
OF_PROXIES: list[Message] = [
    control.Register(
        instance="0123456789abcdef" * 2,
        address="10.0.0.1:6380",
        hostname="host",
        pid=1,
        workers=4,
        version="1.0",
        epoch=7,
        registered_before=True,
        draining=True,
        changes_rules=True,
        stands_down=5.0,
        cluster=control.ClusterAddress(host="10.0.0.1", port=6380, tls_port=0),
        known=control.KnownTable(cluster="c", start="s", epoch=7, seal="ab"),
    ),
    control.Heartbeat(
        epoch=7,
        counters={"requests": 1, "cpu_seconds": 0.5},
        draining=True,
        asked=7,
        silent={"10.0.0.2:6379": 2.5},
        unanswered=["10.0.0.3:6379"],
        number=9,
        stands_down=5.0,
        limited={"alice": HeldShare(30, 4000, 500_000, 250_000)},
        connections={"alice": Connections(200, 30, 5, 40, 50)},
        users=control.HeldUsers(version=4, left_out={"bob": "own"}),
    ),
    control.Ack(epoch=7),
    control.Nack(epoch=7, reason="it took too long"),
    control.Resync(),
    control.Leave(),
    control.Load(
        number=3,
        seconds=5.0,
        slots="AAAA",
        servers={"10.0.0.2:6379": ServerTraffic(5, 1, 200, 300, 900.5, 5)},
        users={"alice": Traffic(5, 1, 200, 300)},
        hot_keys=[HotKey(0, 17, "bGlrZXM=", 5, 120.5, 2.5)],
        notable=[NOTABLE],
        hashed=True,
        all=Traffic(5, 1, 200, 300),
        untold=2,
    ),
    control.Reloaded(
        number=4,
        file="/etc/slotferry/proxy.toml",
        since=1.7e9,
        changed=["token"],
        restart=["listen"],
        hidden=["password"],
        refused="",
        workers=2,
        following=1,
    ),
]
OF_TOPOM: list[Message] = [
    control.Registered(
        proxy_id=1,
        product=Product(name="demo", number_of_slots=1024, slot_function="crc32", databases=16),
        cluster="c",
        start="s",
        heartbeat_seconds=1.0,
        stand_down_seconds=5.0,
        quiet_seconds=2.0,
        users=control.KeptUsers(version=4, users=[{"name": "bob", "of a newer version": {"x": [1]}}]),
    ),
    control.Refused(reason="follower", message="this topom does not lead", leader="http://10.0.0.9:8380"),
    control.Table(table={"epoch": 7, "slots": [], "groups": []}, seal="ab"),
    control.Heard(number=9),
    control.Drain(),
    control.Left(),
    control.Proxies(proxies=[ListedProxy(1, "10.0.0.1", 6380, 0)]),
    control.TellLoad(number=3, slots=200, names=40),
    control.Reload(number=4),
    control.Shares(shares={"alice": Share(500_000, 250_000)}, connections={"alice": 40}),
    control.Users(kept=control.KeptUsers(version=5, users=[{"name": "bob", "no_password": True}])),
]
LONG = 2**63


def notable(**fields: Any) -> list[Any]:
    """A notable request as it is sent, with some fields that it should not have."""
    return [{**NOTABLE._asdict(), **fields}[name] for name in Notable._fields]


HIDDEN = ("a\nb", "\x1b[31mred", "a\u202eb", "a\x00", "a\x85b")
"""Texts with characters that change how a terminal or a log shows the others, or that nobody sees."""
ODD_HOSTS = ("", "x" * 256, "a\r\nb c", "a b", "[::1]", "host:1", "\u0430.com", 1, None)
ODD_SERVERS = ("", "x" * 301, "nonsense", "a b:1", "a:b", "a:0", "x:99999999", "h" * 400 + ":1")
HUGE = 10**400
"""A number that JSON can have, and no float."""
WRONG: list[tuple[str, str, Any]] = [
    *(("register", "protocol", value) for value in (-1, LONG, 1.5, "1", True, None)),
    *(("register", "instance", value) for value in ("", "0" * 31, "0" * 33, "G" * 32, "A" * 32, "0" * 32 + "\n", 1)),
    *(("register", "address", value) for value in ("x" * 301, None, *HIDDEN)),
    *(("register", "hostname", value) for value in ("x" * 301, None, *HIDDEN)),
    *(("register", "pid", value) for value in (-1, 1.5, "1", True, 2**31, HUGE)),
    *(("register", "workers", value) for value in (0, 4097)),
    *(("register", "version", value) for value in ("x" * 101, None, *HIDDEN)),
    *(("register", "epoch", value) for value in (-1, LONG, 1.5, "1", None)),
    *(("register", "registered_before", value) for value in (1, "yes", None)),
    *(("register", "draining", value) for value in (1, "yes", None)),
    *(("register", "changes_rules", value) for value in (1, "yes", None)),
    *(("register", "stands_down", value) for value in (0, -1, float("inf"), float("nan"), "5", HUGE, 1e13)),
    *(("register", "cluster", value) for value in ({}, [], "10.0.0.1:1")),
    *(("register", "cluster.host", value) for value in ODD_HOSTS),
    *(("register", "cluster.port", value) for value in (-1, 65536, "1")),
    *(("register", "cluster.tls_port", value) for value in (-1, 65536, "1")),
    *(("register", "known", value) for value in ({}, [], "c")),
    *(
        ("register", "known", {"cluster": "c", "start": "s", "epoch": 7, "seal": value})
        for value in ("x" * 101, 1, None, *HIDDEN)
    ),
    *(("register", "known.cluster", value) for value in ("", "x" * 101, None, *HIDDEN)),
    *(("register", "known.start", value) for value in ("", "x" * 101, None, *HIDDEN)),
    *(("register", "known.epoch", value) for value in (-1, LONG, 1.5, "1", None)),
    *(("heartbeat", "epoch", value) for value in (-1, LONG, None)),
    *(("heartbeat", "counters", {"requests": value}) for value in (float("inf"), float("nan"), "1", None, True)),
    *(("heartbeat", "counters", {"requests": value}) for value in (HUGE, -HUGE)),
    *(("heartbeat", "counters", value) for value in ({"x" * 101: 1}, dict.fromkeys(map(str, range(101)), 1), [])),
    *(("heartbeat", "draining", value) for value in (1, None)),
    *(("heartbeat", "asked", value) for value in (-1, LONG)),
    *(("heartbeat", "silent", {"s:1": value}) for value in (-0.1, float("inf"), float("nan"), "1", HUGE)),
    *(("heartbeat", "silent", {value: 1}) for value in ODD_SERVERS),
    *(("heartbeat", "unanswered", [value]) for value in ODD_SERVERS),
    ("heartbeat", "silent", {f"h{number}:1": 1 for number in range(MOST_SERVERS + 1)}),
    *(("heartbeat", "unanswered", value) for value in ([""], ["x" * 301], ["s:1"] * (MOST_SERVERS + 1), {"s": 1})),
    *(("heartbeat", "number", value) for value in (-1, LONG)),
    *(("heartbeat", "stands_down", value) for value in (0, float("inf"))),
    *(("heartbeat", "limited", {value: [0, 0, 0, 0]}) for value in ("", "x" * 257, *HIDDEN)),
    *(
        ("heartbeat", "limited", {"u": value})
        for value in ([0] * 3, [0] * 5, [-1, 0, 0, 0], [0, 0, WHOLE + 1, 0], None)
    ),
    ("heartbeat", "limited", {f"u{number}": [0, 0, 0, 0] for number in range(MOST_LIMITED + 1)}),
    *(("heartbeat", "connections", {value: [0] * 5}) for value in ("", "x" * 257, *HIDDEN)),
    *(
        ("heartbeat", "connections", {"u": value})
        for value in ([0] * 4, [0] * 6, [-1, *[0] * 4], [0.5, *[0] * 4], None)
    ),
    ("heartbeat", "connections", {f"u{number}": [0] * 5 for number in range(MOST_LIMITED + 1)}),
    *(("heartbeat", "users", value) for value in ({}, [], 4)),
    *(("heartbeat", "users.version", value) for value in (-1, LONG, 0.5, "1", None)),
    *(("heartbeat", "users.left_out", {value: "own"}) for value in ("", "x" * 257, *HIDDEN)),
    *(("heartbeat", "users.left_out", {"u": value}) for value in ("x" * 101, 1, None, *HIDDEN)),
    ("heartbeat", "users.left_out", {f"u{number}": "own" for number in range(control.MOST_LEFT_OUT + 1)}),
    *(
        (kind, f"{field}.version", value)
        for kind, field in (("registered", "users"), ("users", "kept"))
        for value in (-1, LONG, 0.5, "1", None)
    ),
    *(
        (kind, f"{field}.users", value)
        for kind, field in (("registered", "users"), ("users", "kept"))
        for value in ({}, None, [1], [[]], [{}] * (control.MOST_KEPT + 1))
    ),
    *(("ack", "epoch", value) for value in (-1, LONG, None)),
    *(("nack", "epoch", value) for value in (-1, LONG, None)),
    *(("nack", "reason", value) for value in ("x" * (MOST_TEXT + 1), {}, None, *HIDDEN)),
    *(("load", "number", value) for value in (-1, LONG, None)),
    *(("load", "seconds", value) for value in (-1, float("inf"), float("nan"), None, HUGE)),
    *(("load", "slots", value) for value in ("AAA", "A" * (MAXIMUM_SLOTS * 35), None, 1)),
    *(("load", "servers", {value: [0] * 6}) for value in ODD_SERVERS),
    *(("load", "servers", {"s:1": value}) for value in ([0] * 5, [0] * 7, [*[0] * 5, -1], {}, None)),
    *(("load", "servers", {"s:1": [value, *[0] * 5]}) for value in (-1, LONG, 0.5, "1", HUGE)),
    *(("load", "servers", {"s:1": [0, 0, 0, 0, value, 0]}) for value in (-1, float("inf"), float("nan"), "1", HUGE)),
    *(("load", "users", {value: [0, 0, 0, 0]}) for value in ("", "x" * 257, *HIDDEN)),
    *(("load", "users", {"u": value}) for value in ([0] * 3, [0, 0, -1, 0], None)),
    ("load", "users", {f"u{number}": [0, 0, 0, 0] for number in range(MOST_USERS + 1)}),
    ("load", "hot_keys", [[0, 0, "", 0, 0, 0]] * (MOST_HOT_KEYS + 1)),
    *(("load", "hot_keys", [[0, 0, value, 0, 0, 0]]) for value in ("AAA", "A" * (KEY_BYTES * 2), None)),
    *(("load", "hot_keys", [[0, 0, "", 0, value, 0]]) for value in (-1, float("nan"), float("inf"), None)),
    *(("load", "hot_keys", [value]) for value in ([], [0] * 6, None)),
    ("load", "notable", [notable()] * (MOST_NOTABLE + 1)),
    *(("load", "notable", [value]) for value in ([], notable()[:-1], [*notable(), 0], None)),
    *(("load", "notable", [notable(why=value)]) for value in ("", "big", None)),
    *(("load", "notable", [notable(command=value)]) for value in ("", "x" * 65, None, *HIDDEN)),
    *(("load", "notable", [notable(slot=value)]) for value in (-2, MAXIMUM_SLOTS, None, "1")),
    *(("load", "notable", [notable(key=value)]) for value in ("AAA", "A" * (KEY_BYTES * 2), None)),
    *(("load", "notable", [notable(user=value)]) for value in ("", "x" * 257, *HIDDEN)),
    *(("load", "notable", [notable(client=value)]) for value in ("x" * 65, None, *HIDDEN)),
    *(("load", "notable", [notable(server=value)]) for value in ("x" * 301, None, *HIDDEN)),
    *(("load", "notable", [notable(seconds=value)]) for value in (-1, float("inf"), float("nan"), None, HUGE)),
    *(("load", "notable", [notable(microseconds=value)]) for value in (-1, float("inf"), float("nan"), None, HUGE)),
    *(
        ("load", "notable", [notable(**{field: value})])
        for field in ("database", "length", "bytes_in", "bytes_out", "elements")
        for value in (-1, LONG, 0.5, "1", None)
    ),
    *(("load", "hashed", value) for value in (1, None)),
    *(("load", "all", value) for value in ([0] * 3, [-1, 0, 0, 0], None)),
    *(("load", "untold", value) for value in (-1, LONG, None)),
    *(("tell_load", "number", value) for value in (-1, LONG, None)),
    *(("tell_load", "slots", value) for value in (-1, LONG, None)),
    *(("tell_load", "names", value) for value in (-1, LONG, None)),
    *(("shares", "shares", {value: [0, 0]}) for value in ("", "x" * 257, *HIDDEN)),
    *(("shares", "shares", {"u": value}) for value in ([0], [0] * 3, [-1, 0], [0, WHOLE + 1], [0.5, 0], None)),
    ("shares", "shares", {f"u{number}": [0, 0] for number in range(MOST_LIMITED + 1)}),
    *(("shares", "connections", {"u": value}) for value in (-1, LONG, 0.5, [1], None)),
    ("shares", "connections", {f"u{number}": 1 for number in range(MOST_LIMITED + 1)}),
    *(("reload", "number", value) for value in (-1, LONG, None)),
    *(("reloaded", name, value) for name in ("number", "workers", "following") for value in (-1, LONG, None)),
    *(("reloaded", name, value) for name in ("file", "refused") for value in ("x" * 1001, None, *HIDDEN)),
    *(("reloaded", "since", value) for value in (-1.0, 1e12, HUGE, None)),
    *(
        ("reloaded", name, value)
        for name in ("changed", "hidden", "restart")
        for value in ("token", [""], [None], ["x" * 101], ["x"] * 1001, *([text] for text in HIDDEN))
    ),
    *(("registered", "proxy_id", value) for value in (0, None, LONG, HUGE)),
    *(("registered", "product", value) for value in ({}, "demo")),
    *(("registered", "product.name", value) for value in ("", "x" * 101, *HIDDEN)),
    *(("registered", "product.number_of_slots", value) for value in (0, -1, 3, 1000, 16385, 32768, "many")),
    *(("registered", "product.slot_function", value) for value in ("", "x" * 101, "nope", "CRC32")),
    *(("registered", "product.databases", value) for value in (0, 2**31, HUGE)),
    *(("registered", "cluster", value) for value in ("", "x" * 101, None, *HIDDEN)),
    *(("registered", "start", value) for value in ("", "x" * 101, None, *HIDDEN)),
    *(("registered", "heartbeat_seconds", value) for value in (0, -1, float("inf"), float("nan"), None, HUGE)),
    *(("registered", "stand_down_seconds", value) for value in (0, -1, float("inf"), float("nan"), HUGE)),
    *(("registered", "quiet_seconds", value) for value in (0, -1, float("inf"), float("nan"), None, HUGE)),
    *(("refused", "reason", value) for value in ("x" * 101, None, *HIDDEN)),
    *(("refused", "message", value) for value in ("x" * (MOST_TEXT + 1), None, *HIDDEN)),
    *(("refused", "leader", value) for value in ("x" * 2001, None, *HIDDEN)),
    *(("table", "seal", value) for value in ("x" * 101, 1, None, *HIDDEN)),
    *(("table", "table", value) for value in ([], None, dict.fromkeys(map(str, range(17)), 1))),
    *(("heard", "number", value) for value in (-1, LONG, None)),
    *(("proxies", "proxies", value) for value in (None, {}, [[1, "h", 1, 0]] * (MOST_PROXIES + 1))),
    *(("proxies", "proxies", [[value, "h", 1, 0]]) for value in (-1, "1", LONG, HUGE)),
    *(("proxies", "proxies", [[1, value, 1, 0]]) for value in ODD_HOSTS),
    *(
        ("proxies", "proxies", [[1, "h", *ports]])
        for ports in ((-1, 0), (65536, 0), (0, -1), (0, 65536), (0,), (0, 0, 0))
    ),
]
WIRE = {message.type: json.loads(encode(message)) for message in (*OF_PROXIES, *OF_TOPOM)}


def parse(wire: dict[str, Any]) -> ProxyMessage | TopomMessage:
    of_proxies = wire["type"] in {message.type for message in OF_PROXIES}
    return parse_proxy(json.dumps(wire)) if of_proxies else parse_topom(json.dumps(wire))


def test_every_message_has_a_sample() -> None:
    assert {type(message) for message in OF_PROXIES} == kinds_of(ProxyMessage)
    assert {type(message) for message in OF_TOPOM} == kinds_of(TopomMessage)


@pytest.mark.parametrize("message", [*OF_PROXIES, *OF_TOPOM], ids=lambda message: message.type)
def test_a_message_comes_over_whole_and_what_is_new_in_it_is_ignored(message: Message) -> None:
    wire = WIRE[message.type]
    assert parse(wire) == message
    assert parse({**wire, "of a newer version": 1}) == message


def test_of_every_field_a_wrong_value_is_tried() -> None:
    assert untried([*OF_PROXIES, *OF_TOPOM], [(kind, path) for kind, path, _ in WRONG]) == set()


@pytest.mark.parametrize(("kind", "path", "value"), WRONG, ids=lambda value: str(value)[:20])
def test_a_value_beyond_its_limits_is_refused(kind: str, path: str, value: Any) -> None:
    with pytest.raises(MessageError, match=rf"^{kind}\.{path}"):
        parse(with_field(WIRE[kind], path, value))


NAME = ".".join(["x" * 63] * 3 + ["x" * 61])
"""The longest name of a host."""


def test_a_value_at_its_limits_is_taken() -> None:
    assert MOST_COUNTERS == 100
    for kind, path, value in [
        ("register", "workers", 4096),
        ("register", "epoch", LONG - 1),
        ("register", "cluster.port", 65535),
        ("heartbeat", "counters", dict.fromkeys(map(str, range(MOST_COUNTERS)), 1)),
        ("heartbeat", "unanswered", [f"{NAME}:65535"] * MOST_SERVERS),
        ("register", "address", "/" + "x" * 299),
        ("register", "cluster.host", NAME),
        ("register", "cluster.host", "fe80::1%eth0"),
        ("nack", "reason", "x" * MOST_TEXT),
        ("registered", "product.number_of_slots", 16384),
        ("proxies", "proxies", [[0, "h", 65535, 65535]] * MOST_PROXIES),
    ]:
        parse(with_field(WIRE[kind], path, value))


def test_neither_side_takes_what_the_other_says() -> None:
    for message in OF_PROXIES:
        with pytest.raises(MessageError):
            parse_topom(encode(message))
    for message in OF_TOPOM:
        with pytest.raises(MessageError):
            parse_proxy(encode(message))
