"""Every message of the channel comes over whole, and what breaks a limit is refused."""

import base64
import json
from typing import Any

import pytest

from slots.limitshares import WHOLE
from slots.messages import channel, questions
from slots.messages.channel import (
    MOST_BUCKETS,
    MOST_COMMANDS,
    MOST_GROUPS,
    MOST_WORKERS,
    Grant,
    Known,
    Statistic,
    SupervisorMessage,
    WorkerMessage,
    parse_supervisor,
    parse_worker,
)
from slots.messages.load import (
    MOST_HOT_KEYS,
    MOST_LIMITED,
    MOST_NOTABLE,
    MOST_USERS,
    Connections,
    HotKey,
    Notable,
    ServerTraffic,
    Share,
    Traffic,
    UserDemand,
)
from slots.messages.message import (
    MOST_PROXIES,
    MOST_SERVERS,
    MOST_TEXT,
    ListedProxy,
    Message,
    MessageError,
    Product,
    encode,
)
from slots.replies import MOST_RUN_ID
from slots.slot import MAXIMUM_SLOTS
from tests.unit.slots.messages.samples import kinds_of, untried, with_field

INSTANCE = "0123456789abcdef" * 2
GRANT = Grant(all=1005.5, groups={2: 1006.0}, ended=True)
KNOWN = Known(processes={"10.0.0.2:6379": "f" * 40}, until=2000.0)
TABLE: dict[str, Any] = {"epoch": 7, "slots": [], "groups": []}
NOTABLE = Notable("slow", "get", 0, -1, "", 0, "default", "", "", 0.5, 900.5, 30, 70, 0)
OF_SUPERVISORS: list[Message] = [
    channel.Start(
        settings={"listen": "10.0.0.1:6380", "password": "a\udcff"},
        index=1,
        incarnation=3,
        instance=INSTANCE,
        product=Product(name="demo", number_of_slots=1024, slot_function="crc32", databases=16),
        allowance=GRANT,
        known_servers=KNOWN,
        listen_fds={"unix_socket": 5},
    ),
    channel.Table(table=TABLE),
    channel.Allowance(instance=INSTANCE, grant=GRANT),
    channel.Identity(instance=INSTANCE, incarnation=3, table=TABLE, allowance=GRANT, known_servers=KNOWN),
    channel.KnownServers(instance=INSTANCE, known=KNOWN),
    channel.Proxies(own=ListedProxy(0, "10.0.0.1", 6380, 0), nodes=[ListedProxy(1, "10.0.0.1", 6380, 0)]),
    channel.Ask(id=9, question=questions.SlowLog(count=None)),
    channel.Answers(id=9, answers=[None, {"a\udcff": 1}]),
    channel.Settings(number=2, settings={"listen": "127.0.0.1:6380"}),
    channel.Shares(shares={"alice": Share(500_000, 250_000)}, connections={"alice": 40}),
    channel.Drain(),
]
OF_WORKERS: list[Message] = [
    channel.Ready(address="10.0.0.1:6380"),
    channel.Ack(instance=INSTANCE, epoch=7),
    channel.Nack(instance=INSTANCE, epoch=7, reason="it took too long"),
    channel.Resync(),
    channel.SettingsTaken(number=2),
    channel.Counters(
        counters={"requests": 1, "cpu_seconds": 0.5}, commands={"get\udcff": Statistic(2, 1, 50.0, [0, 2], 60, 10)}
    ),
    channel.Load(
        slots=base64.b64encode(bytes(26)).decode(),
        servers={"10.0.0.2:6379": ServerTraffic(2, 1, 60, 10, 50.0, 2)},
        users={"default": Traffic(2, 1, 60, 10)},
        limited={"alice": UserDemand(30, 4000, 5, 2, 70)},
        connections={"alice": Connections(200, 30, 5, 40, 50)},
        hot_keys=[HotKey(0, 7, base64.b64encode(b"\xff").decode(), 1, 100.0, 1.0)],
        notable=[NOTABLE],
    ),
    channel.Limited(),
    channel.Met(instance=INSTANCE, server="10.0.0.2:6379", process="f" * 40),
    channel.Fenced(instance=INSTANCE, server="10.0.0.2:6379"),
    channel.Ask(id=9, question=questions.SlowLog(count=3)),
    channel.Answer(id=9, answer=["a\udcff"]),
]
LONG = 2**63
ODD_SERVERS = ("", "x" * 301, "nonsense", "a b:1", "a:b", "a:0", "x:99999999")
HUGE = 10**400
"""A number that JSON can have, and no float."""
ODD_TIMES = (-0.5, float("inf"), float("nan"), "1", 1e13, HUGE)
ODD_INSTANCES = ("", "0" * 31, "0" * 33, "G" * 32, None)
WRONG: list[tuple[str, str, Any]] = [
    *(("start", "settings", value) for value in ([], None)),
    *(("settings", "settings", value) for value in ([], None)),
    *(("start", "index", value) for value in (-1, MOST_WORKERS, "0")),
    *(("start", "incarnation", value) for value in (0, "1", LONG)),
    *(("start", "instance", value) for value in ODD_INSTANCES),
    *(("start", "product", value) for value in ({}, None)),
    *(("start", "product.number_of_slots", value) for value in (0, 3, 16385)),
    ("start", "product.slot_function", "nope"),
    *(("start", "allowance", value) for value in ({}, None)),
    *(("start", "allowance.all", value) for value in ODD_TIMES),
    *(("start", "known_servers", value) for value in ({}, [])),
    *(
        ("start", "listen_fds", value)
        for value in ({"listen": -1}, {"listen": 2**31}, {"listen": "5"}, dict.fromkeys("abcd", 1))
    ),
    *(("table", "table", value) for value in ([], None, dict.fromkeys(map(str, range(17)), 1))),
    *(("allowance", "instance", value) for value in ODD_INSTANCES),
    *(("allowance", "grant.all", value) for value in ODD_TIMES),
    *(("allowance", "grant.groups", {"1": value}) for value in ODD_TIMES),
    *(
        ("allowance", "grant.groups", {value: 1.0})
        for value in ("0", str(2**31), "x", "01", " 1", "+1", "1_0", "1.0", "\u0661")
    ),
    ("allowance", "grant.groups", dict.fromkeys(map(str, range(1, MOST_GROUPS + 2)), 1.0)),
    *(("allowance", "grant.ended", value) for value in (1, None)),
    ("allowance", "grant.more", 1),
    *(("identity", "instance", value) for value in ODD_INSTANCES),
    *(("identity", "incarnation", value) for value in (0, None)),
    *(("identity", "table", value) for value in ([], None)),
    *(("identity", "allowance", value) for value in ({}, None)),
    *(("identity", "known_servers", value) for value in ({}, [])),
    *(("known_servers", "instance", value) for value in ODD_INSTANCES),
    *(("known_servers", "known.until", value) for value in ODD_TIMES),
    *(("known_servers", "known.processes", {value: "f"}) for value in ODD_SERVERS),
    *(("known_servers", "known.processes", {"s:1": value}) for value in ("", "f" * (MOST_RUN_ID + 1), 1, "a\nb")),
    ("known_servers", "known.processes", {f"h{number}:1": "f" for number in range(MOST_SERVERS + 1)}),
    ("known_servers", "known.more", 1),
    *(("proxies", "own", value) for value in (None, [1, "", 1, 1], [-1, "h", 1, 1], [1, "h", 65536, 1])),
    *(("proxies", "nodes", value) for value in (None, [[1, "h", 1, -1]], [[1, "h", 1, 0]] * (MOST_PROXIES + 1))),
    *((kind, "number", value) for kind in ("settings", "settings_taken") for value in (-1, LONG, "1")),
    *(("ask", "id", value) for value in (-1, LONG, "1")),
    *(("ask", "question", value) for value in (None, {}, {"what": "unknown"}, {"what": "slow_log_length", "more": 1})),
    *(("answers", "id", value) for value in (-1, LONG)),
    *(("answers", "answers", value) for value in (None, {}, [None] * (MOST_WORKERS + 1))),
    *(("ready", "address", value) for value in ("x" * 301, None, "a\nb")),
    *(("ack", "instance", value) for value in ODD_INSTANCES),
    *(("ack", "epoch", value) for value in (-1, LONG, "1")),
    *(("nack", "instance", value) for value in ODD_INSTANCES),
    *(("nack", "epoch", value) for value in (-1, LONG)),
    *(("nack", "reason", value) for value in ("x" * (MOST_TEXT + 1), None, "a\nb")),
    *(("counters", "counters", {"a": value}) for value in (float("inf"), float("nan"), "1", True, HUGE, -HUGE)),
    *(("counters", "counters", value) for value in ({"x" * 101: 1}, dict.fromkeys(map(str, range(101)), 1))),
    *(
        ("counters", "commands", {"get": value})
        for value in ([1, 1, 1.0, []], [-1, 1, 1.0, [], 1, 1], [1, LONG, 1.0, [], 1, 1], [1, 1, 1.0, [], -1, 1])
    ),
    *(("counters", "commands", {"get": value}) for value in ([1, 1, -1.0, [], 1, 1], [1, 1, 1.0, ["1"], 1, 1])),
    *(("counters", "commands", {"get": [1, 1, value, [], 1, 1]}) for value in (float("nan"), float("inf"), 1e19, HUGE)),
    ("counters", "commands", {"get": [1, 1, 1.0, [0] * (MOST_BUCKETS + 1), 1, 1]}),
    ("counters", "commands", {str(name): [1, 1, 1.0, [], 1, 1] for name in range(MOST_COMMANDS + 1)}),
    *(("load", "slots", value) for value in ("AAA", "A" * (MAXIMUM_SLOTS * 35), None, 1)),
    *(("load", "servers", {value: [0] * 6}) for value in ODD_SERVERS),
    *(("load", "servers", {"s:1": [value, *[0] * 5]}) for value in (-1, LONG, 0.5, "1", HUGE)),
    *(("load", "users", {"u": value}) for value in ([0] * 3, [0, 0, -1, 0], None)),
    ("load", "users", {f"u{number}": [0, 0, 0, 0] for number in range(MOST_USERS + 1)}),
    *(("load", "limited", {"u": value}) for value in ([0] * 4, [0] * 6, [0, 0, 0, 0, -1], [0.5, *[0] * 4], None)),
    ("load", "limited", {f"u{number}": [0] * 5 for number in range(MOST_LIMITED + 1)}),
    *(("shares", "shares", {"u": value}) for value in ([0], [0] * 3, [-1, 0], [0, WHOLE + 1], [0.5, 0], None)),
    ("shares", "shares", {f"u{number}": [0, 0] for number in range(MOST_LIMITED + 1)}),
    *(("shares", "connections", {"u": value}) for value in (-1, LONG, 0.5, [1], None)),
    ("shares", "connections", {f"u{number}": 1 for number in range(MOST_LIMITED + 1)}),
    *(("load", "connections", {"u": value}) for value in ([0] * 4, [0] * 6, [-1, *[0] * 4], [0.5, *[0] * 4], None)),
    ("load", "connections", {f"u{number}": [0] * 5 for number in range(MOST_LIMITED + 1)}),
    ("load", "hot_keys", [[0, 0, "", 0, 0, 0]] * (MOST_HOT_KEYS + 1)),
    *(("load", "hot_keys", [[0, 0, "", 0, value, 0]]) for value in (-1, float("nan"), float("inf"), None)),
    ("load", "notable", [list(NOTABLE)] * (MOST_NOTABLE + 1)),
    *(("load", "notable", [value]) for value in ([], list(NOTABLE)[:-1], ["big", *NOTABLE[1:]], None)),
    *(("met", "instance", value) for value in ODD_INSTANCES),
    *(("met", "server", value) for value in ODD_SERVERS),
    *(("met", "process", value) for value in ("", "f" * (MOST_RUN_ID + 1), "a\nb")),
    *(("fenced", "instance", value) for value in ODD_INSTANCES),
    *(("fenced", "server", value) for value in (*ODD_SERVERS, None)),
    *(("answer", "id", value) for value in (-1, LONG, "1")),
]
ANYTHING = {("answer", "answer")}
WIRE = {message.type: json.loads(encode(message)) for message in (*OF_SUPERVISORS, *OF_WORKERS)}


def parse(wire: dict[str, Any]) -> SupervisorMessage | WorkerMessage:
    line = json.dumps(wire).encode()
    return parse_worker(line) if wire["type"] in {message.type for message in OF_WORKERS} else parse_supervisor(line)


def test_every_message_has_a_sample() -> None:
    assert {type(message) for message in OF_SUPERVISORS} == kinds_of(SupervisorMessage)
    assert {type(message) for message in OF_WORKERS} == kinds_of(WorkerMessage)


@pytest.mark.parametrize("message", [*OF_SUPERVISORS, *OF_WORKERS], ids=lambda message: message.type)
def test_a_message_comes_over_whole_with_whatever_clients_have_sent(message: Message) -> None:
    line = encode(message).encode()
    assert (parse_supervisor if message in OF_SUPERVISORS else parse_worker)(line) == message


def test_of_every_field_a_wrong_value_is_tried() -> None:
    tried = [(kind, path) for kind, path, _ in WRONG]
    assert untried([*OF_SUPERVISORS, *OF_WORKERS], tried) == ANYTHING


@pytest.mark.parametrize(("kind", "path", "value"), WRONG, ids=lambda value: str(value)[:20])
def test_a_value_beyond_its_limits_is_refused(kind: str, path: str, value: Any) -> None:
    with pytest.raises(MessageError, match=rf"^{kind}\.{path}"):
        parse(with_field(WIRE[kind], path, value))


@pytest.mark.parametrize("kind", WIRE)
def test_an_unknown_field_is_refused(kind: str) -> None:
    with pytest.raises(MessageError, match=rf"^{kind}\.more: Extra inputs are not permitted"):
        parse({**WIRE[kind], "more": 1})


def test_neither_side_takes_what_the_other_says() -> None:
    for message in OF_SUPERVISORS:
        if not isinstance(message, channel.Ask):
            with pytest.raises(MessageError):
                parse_worker(encode(message).encode())
    for message in OF_WORKERS:
        if not isinstance(message, channel.Ask):
            with pytest.raises(MessageError):
                parse_supervisor(encode(message).encode())
