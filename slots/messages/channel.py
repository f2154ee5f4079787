"""The channel between a proxy's supervisor and one of its workers. Each message is one line of JSON.

The first message is the supervisor's ``start``. Both are of one version, on one machine: a message of an unknown type,
or with an unknown field, is refused as any other that breaks the rules, and ends the channel. A worker ends when its
channel does, for without its supervisor it would get no new tables; the supervisor starts another one.

Text that clients have sent may be anything (:data:`~slots.messages.questions.AnyText`).
"""

import json
import re
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from slots.fields import LARGEST, LARGEST_GROUP_ID
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
    SlotRows,
    Traffic,
    UserDemand,
    UserName,
)
from slots.messages.message import (
    LATER,
    MOST_PROXIES,
    MOST_SERVERS,
    VISIBLE,
    CounterValues,
    Epoch,
    Instance,
    ListedProxy,
    Message,
    MessageError,
    Number,
    Part,
    Place,
    Product,
    Sentence,
    Server,
    TableContent,
    Time,
    explained,
)
from slots.messages.questions import AnyText, Question
from slots.replies import MOST_RUN_ID

MOST_GROUPS = 100_000
MOST_COMMANDS = 10_000
MOST_BUCKETS = 1000
MOST_WORKERS = 4096


def _group_id(value: object) -> object:
    if isinstance(value, str) and not _GROUP_ID.fullmatch(value):
        raise ValueError("Input should be a number from 1 on, without signs or leading zeros")
    return value


_GROUP_ID = re.compile(r"[1-9][0-9]{0,9}", re.ASCII)
RunId: TypeAlias = Annotated[str, Field(min_length=1, max_length=MOST_RUN_ID), VISIBLE]
GroupId: TypeAlias = Annotated[int, Field(strict=False, ge=1, le=LARGEST_GROUP_ID), BeforeValidator(_group_id)]
"""In JSON the name of a field, and so a text: one text for each group, so that none is named twice."""
Incarnation: TypeAlias = Annotated[int, Field(ge=1, le=LARGEST)]
"""Which of the supervisor's workers it is, counted from its start."""


class ChannelMessage(Message):
    """A message of the channel."""

    model_config = ConfigDict(extra="forbid")


class Grant(Part):
    """Until when servers may be used (:mod:`proxy.servers.allowances`)."""

    model_config = ConfigDict(extra="forbid")

    all: Time | None
    """The time until which all groups may be used; None for no limit."""
    groups: dict[GroupId, Time] = Field(default_factory=dict, max_length=MOST_GROUPS)
    """Later times, by group."""
    ended: bool = False
    """Whether the identity has ended, so that no server may be used under it."""


class Known(Part):
    """The processes of servers that cannot have forgotten a fence of the proxy (:mod:`proxy.servers.knownservers`)."""

    model_config = ConfigDict(extra="forbid")

    processes: dict[Server, RunId] = Field(max_length=MOST_SERVERS)
    until: Time
    """The time until which they are known."""


# -- what a supervisor says ----------------------------------------------------------------------------------------


class Start(ChannelMessage):
    """All that a worker needs to begin. It listens once it has its first table."""

    type: Literal["start"] = "start"
    settings: dict[str, Any]
    """:meth:`proxy.settings.ProxySettings.to_wire`, which checks them; the ports of ``listen`` and ``tls_listen`` are
    never 0."""
    index: int = Field(ge=0, lt=MOST_WORKERS)
    """Its seat among the workers."""
    incarnation: Incarnation
    instance: Instance
    product: Product
    allowance: Grant = Grant(all=None)
    known_servers: Known | None = None
    """None: any process is known."""
    listen_fds: dict[str, Annotated[int, Field(ge=0, le=2**31 - 1)]] = Field(max_length=3)
    """Descriptors of inherited, bound sockets, by the setting that names the place. The worker calls ``listen`` on
    them. ``unix_socket``, which all workers share, is always among them. Where SO_REUSEPORT spreads connections (Linux)
    the others are not, and the worker binds those itself with SO_REUSEPORT and SO_REUSEADDR."""


class Table(ChannelMessage):
    """A whole table, or the changes since one; answered by :class:`Ack`, :class:`Nack` or :class:`Resync`."""

    type: Literal["table"] = "table"
    table: TableContent


class Allowance(ChannelMessage):
    """Servers may be used until these times, and no longer."""

    type: Literal["allowance"] = "allowance"
    instance: Instance
    grant: Grant


class Identity(ChannelMessage):
    """The proxy was fenced, or removed: every backend is closed, and opened again under the new name **by the table
    that comes along**.

    Both happen in one step: by the old table, the new name could send a slot's commands where they no longer belong
    (**one-owner**).
    """

    type: Literal["identity"] = "identity"
    instance: Instance
    incarnation: Incarnation
    table: TableContent
    """A whole one."""
    allowance: Grant = Grant(all=None)
    known_servers: Known | None = None
    """None: any process is known."""


class KnownServers(ChannelMessage):
    """From now on, these processes are known, and no others."""

    type: Literal["known_servers"] = "known_servers"
    instance: Instance
    known: Known


class Proxies(ChannelMessage):
    """The proxies for cluster clients (:mod:`proxy.clusterview`). In cluster mode only, before the first table."""

    type: Literal["proxies"] = "proxies"
    own: ListedProxy
    nodes: list[ListedProxy] = Field(max_length=MOST_PROXIES)


class Ask(ChannelMessage):
    """A question to every worker. A worker asks, and the supervisor passes it on under a number of its own; answered by
    :class:`Answer`, and to the asking worker by :class:`Answers`."""

    type: Literal["ask"] = "ask"
    id: Number
    question: Question


class Answers(ChannelMessage):
    """What the workers answered within a second, by their index."""

    type: Literal["answers"] = "answers"
    id: Number
    answers: list[Any] = Field(max_length=MOST_WORKERS)


class Settings(ChannelMessage):
    """Settings that hold from now on; only those differ that may change while a proxy runs. Answered by
    :class:`SettingsTaken`."""

    type: Literal["settings"] = "settings"
    number: Number
    """Grows with each that is sent."""
    settings: dict[str, Any]
    """As in :class:`Start`."""


class Shares(ChannelMessage):
    """The worker's shares of the limits of users (:mod:`proxy.supervisor.limitshares`), of each that has some."""

    type: Literal["shares"] = "shares"
    shares: dict[UserName, Share] = Field(max_length=MOST_LIMITED)
    connections: dict[UserName, Number] = Field(default_factory=dict, max_length=MOST_LIMITED)
    """How many connections each user may have there that may only have so many."""


class Drain(ChannelMessage):
    """Stop listening, have the clients leave within ``drain_seconds`` and ``drain_last_seconds``, exit.

    The status is 0 if no server can still run anything that the worker sent. Else its connections are ended at the
    servers.
    """

    type: Literal["drain"] = "drain"


SupervisorMessage: TypeAlias = (
    Start | Table | Allowance | Identity | KnownServers | Proxies | Ask | Answers | Settings | Shares | Drain
)
_of_supervisors: TypeAdapter[SupervisorMessage] = TypeAdapter(
    Annotated[SupervisorMessage, Field(discriminator="type")], config=LATER
)


def parse_supervisor(line: bytes) -> SupervisorMessage:
    """The message of a supervisor. Raises :class:`~slots.messages.message.MessageError`."""
    try:
        return _of_supervisors.validate_python(_read(line))
    except ValidationError as error:
        raise explained(error) from error


# -- what a worker says --------------------------------------------------------------------------------------------


class OfIdentity(ChannelMessage):
    """A message that counts only while the worker has that identity. Else it was sent before an :class:`Identity`
    came."""

    instance: Instance


class Ready(ChannelMessage):
    """It listens."""

    type: Literal["ready"] = "ready"
    address: Place


class Ack(OfIdentity):
    """It has applied the table of ``epoch``, and **drained** holds for it."""

    type: Literal["ack"] = "ack"
    epoch: Epoch


class Nack(OfIdentity):
    """Draining took too long, and the worker has unlocked again."""

    type: Literal["nack"] = "nack"
    epoch: Epoch
    reason: Sentence


class Resync(ChannelMessage):
    """It cannot apply the changes that it got; answered by a whole table."""

    type: Literal["resync"] = "resync"


class Statistic(NamedTuple):
    """Of one command."""

    calls: Number
    errors: Number
    microseconds: Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)]
    buckets: Annotated[list[int], Field(max_length=MOST_BUCKETS)]
    """A histogram of the latencies (:mod:`proxy.engine.statistics`). There are thousands of these numbers a second, so
    that their range is not looked at."""
    bytes_in: Number
    """Of requests, from clients."""
    bytes_out: Number
    """Of replies, to clients."""


class Counters(ChannelMessage):
    """Its counters, each second. A worker that sends nothing for several seconds is taken for hung, and ended."""

    type: Literal["counters"] = "counters"
    counters: CounterValues
    """Of :mod:`proxy.supervisor.metrics`."""
    commands: dict[AnyText, Statistic] = Field(default_factory=dict, max_length=MOST_COMMANDS)


class Load(ChannelMessage):
    """What it has counted of its traffic since its last one, each second."""

    type: Literal["load"] = "load"
    slots: SlotRows = ""
    servers: dict[Server, ServerTraffic] = Field(default_factory=dict, max_length=MOST_SERVERS)
    users: dict[UserName, Traffic] = Field(default_factory=dict, max_length=MOST_USERS)
    limited: dict[UserName, UserDemand] = Field(default_factory=dict, max_length=MOST_LIMITED)
    """Of each user that has limits."""
    connections: dict[UserName, Connections] = Field(default_factory=dict, max_length=MOST_LIMITED)
    """Of each user that may only have so many."""
    hot_keys: list[HotKey] = Field(default_factory=list, max_length=MOST_HOT_KEYS)
    """The hottest first; with ``hash_hot_keys``, hashes in place of the keys, here and below."""
    notable: list[Notable] = Field(default_factory=list, max_length=MOST_NOTABLE)
    """The oldest first."""


class SettingsTaken(ChannelMessage):
    """It uses the settings of that number."""

    type: Literal["settings_taken"] = "settings_taken"
    number: Number


class Limited(ChannelMessage):
    """It holds a :class:`Grant` that has a limit."""

    type: Literal["limited"] = "limited"


class Met(OfIdentity):
    """It waits until this process of a server is known."""

    type: Literal["met"] = "met"
    server: Server
    process: RunId


class Fenced(OfIdentity):
    """It found the fence of its instance at a server."""

    type: Literal["fenced"] = "fenced"
    server: Server


class Answer(ChannelMessage):
    """To an :class:`Ask`; None if there is nothing to say."""

    type: Literal["answer"] = "answer"
    id: Number
    answer: Any


WorkerMessage: TypeAlias = (
    Ready | Ack | Nack | Resync | Counters | Load | SettingsTaken | Limited | Met | Fenced | Ask | Answer
)
_of_workers: TypeAdapter[WorkerMessage] = TypeAdapter(
    Annotated[WorkerMessage, Field(discriminator="type")], config=LATER
)


def parse_worker(line: bytes) -> WorkerMessage:
    """The message of a worker. Raises :class:`~slots.messages.message.MessageError`."""
    try:
        return _of_workers.validate_python(_read(line))
    except ValidationError as error:
        raise explained(error) from error


def _read(line: bytes) -> Any:
    # Unlike pydantic, this module reads any text that it has written, with the odd bytes that clients send.
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise MessageError(f"message: {error}") from error
