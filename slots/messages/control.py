"""The control stream: one WebSocket, which a proxy holds open to topom. Each message is one text frame.

A proxy registers with its first message, and topom answers ``registered`` or ``refused``. Then the proxy sends
heartbeats and says what became of each table; topom sends tables, and whatever else there is to say.

The two may be of different versions of one protocol (:mod:`slots.messages.protocol`): fields that are not known are
ignored. A message of an unknown type (:class:`~slots.messages.message.UnknownMessage`) is ignored by a proxy, and
refused by topom.
"""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError

from slots.fields import LARGEST
from slots.messages.load import (
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
    SlotRows,
    Traffic,
    UserName,
)
from slots.messages.message import (
    LATER,
    MOST_PROXIES,
    MOST_SERVERS,
    VISIBLE,
    CounterValues,
    Epoch,
    Host,
    Instance,
    ListedProxy,
    Message,
    Moment,
    Name,
    Number,
    Part,
    Place,
    Port,
    Product,
    Seconds,
    Sentence,
    Server,
    TableContent,
    Time,
    Word,
    explained,
)
from slots.messages.protocol import SPOKEN

MOST_SETTINGS = 1000
"""Names of settings in one message."""
MOST_KEPT = 1000
"""Users that topom keeps."""
MOST_LEFT_OUT = 20
"""Users of topom that a heartbeat names because they do not hold at the proxy."""

# -- what a proxy says ---------------------------------------------------------------------------------------------


class ClusterAddress(Part):
    """Where clients of cluster mode connect."""

    host: Host
    port: Port
    tls_port: Port


class KnownTable(Part):
    """The newest table that a proxy has had (**newest-store**, :mod:`topom.cluster.lineage`).

    Attributes:
        cluster, start: of :class:`Registered`, of the stream over which it came.
        seal: of :class:`Table`, with which it came.
    """

    cluster: Name
    start: Name
    epoch: Epoch
    seal: Word = ""


class KeptUsers(Part):
    """The users that topom keeps.

    Attributes:
        version: grows with each change of them, in one cluster.
        users: fields of :class:`slots.users.UserSettings` that have not their default. A proxy looks at each by itself:
            a user with a field that it does not know is none there.
    """

    version: Number
    users: list[dict[str, Any]] = Field(max_length=MOST_KEPT)


class KnownUsers(Part):
    """The users of topom that a proxy has had last. ``cluster``: of :class:`Registered`."""

    cluster: Name
    kept: KeptUsers


class HeldUsers(Part):
    """What a proxy says of the users that topom keeps.

    Attributes:
        version: that all its workers use.
        left_out: those that do not hold there, and why: ``own`` (the proxy has one of this name itself), ``unknown``
            (it cannot read the entry), ``full`` (too many users with limits). A few of them, if there are many.
    """

    version: Number
    left_out: dict[UserName, Word] = Field(default_factory=dict, max_length=MOST_LEFT_OUT)


class Register(Message):
    """The first message of a connection."""

    type: Literal["register"] = "register"
    protocol: Number = SPOKEN
    """Looked at before the rest (:func:`slots.messages.protocol.check`)."""
    instance: Instance
    address: Place
    hostname: Place
    pid: int = Field(ge=0, le=2**31 - 1)
    workers: int = Field(ge=1, le=4096)
    version: Word
    epoch: Epoch
    """The newest epoch that it acknowledged under this identity."""
    registered_before: bool = False
    """Whether a topom has registered this instance before. If it is not a member then, it was fenced or removed
    since."""
    draining: bool = False
    stands_down: Seconds | None = None
    """The allowance by which it stands down now (:mod:`topom.proxies.standdown`); None if it does not stand down."""
    cluster: ClusterAddress | None = None
    """None if the proxy is not in cluster mode. Those in cluster mode are sent :class:`Proxies`."""
    changes_rules: bool = False
    """Whether it keeps clients off the keys whose slot a change of the slot rules changes."""
    known: KnownTable | None = None
    """None if it has had no table."""


class Heartbeat(Message):
    """The proxy lives. It says so once each ``heartbeat_seconds`` of :class:`Registered`, and when there is news."""

    type: Literal["heartbeat"] = "heartbeat"
    epoch: Epoch
    """As in :class:`Register`."""
    counters: CounterValues = Field(default_factory=dict)
    """Shown to operators as they are."""
    draining: bool = False
    """Whether it lets its clients go."""
    asked: Epoch | None = None
    """The epoch of the table whose servers it asks whether they answer; None while it has no table."""
    silent: dict[Server, Time] = Field(default_factory=dict, max_length=MOST_SERVERS)
    """Seconds since the latest answer, for each server that has been silent for ``quiet_seconds`` of
    :class:`Registered`."""
    unanswered: list[Server] = Field(default_factory=list, max_length=MOST_SERVERS)
    """Servers that have never answered it (:mod:`topom.servers.detector`)."""
    number: Number | None = None
    """A heartbeat with a number is answered by :class:`Heard`, by a topom that leads and has the proxy as a member."""
    stands_down: Seconds | None = None
    """As in :class:`Register`."""
    limited: dict[UserName, HeldShare] = Field(default_factory=dict, max_length=MOST_LIMITED)
    """Of each user that has limits. topom answers with :class:`Shares`."""
    connections: dict[UserName, Connections] = Field(default_factory=dict, max_length=MOST_LIMITED)
    """Of each user that may only have so many. The same answer has its shares."""
    users: HeldUsers | None = None
    """None from a proxy that knows no users of topom, or has not heard of any."""


class Ack(Message):
    """All workers apply the table of ``epoch``, and have had all replies for slots that changed hands or are locked."""

    type: Literal["ack"] = "ack"
    epoch: Epoch


class Nack(Message):
    """The table of ``epoch`` could not be applied in time."""

    type: Literal["nack"] = "nack"
    epoch: Epoch
    reason: Sentence = ""


class Resync(Message):
    """Changes did not fit the proxy's table; it wants the whole one."""

    type: Literal["resync"] = "resync"


class Leave(Message):
    """All workers have ended, and nothing of theirs is under way. topom answers :class:`Left`."""

    type: Literal["leave"] = "leave"


class Load(Message):
    """What the proxy counted since it was asked last; the answer to :class:`TellLoad`."""

    type: Literal["load"] = "load"
    number: Number
    """Of the question."""
    seconds: Time
    """That the counts are of."""
    slots: SlotRows = ""
    """Slots that had requests."""
    servers: dict[Server, ServerTraffic] = Field(default_factory=dict, max_length=MOST_SERVERS)
    users: dict[UserName, Traffic] = Field(default_factory=dict, max_length=MOST_USERS)
    hot_keys: list[HotKey] = Field(default_factory=list, max_length=MOST_HOT_KEYS)
    """The hottest first."""
    notable: list[Notable] = Field(default_factory=list, max_length=MOST_NOTABLE)
    """The oldest first. Those that have no room in this message come with the next."""
    hashed: bool = False
    """Whether ``hot_keys`` and ``notable`` have hashes in place of the keys."""
    all: Traffic = Traffic(0, 0, 0, 0)
    """All requests of the proxy's clients that were answered."""
    untold: Number = 0
    """Slots, servers and users that have no room in this message, and come with the next."""


class Reloaded(Message):
    """What came of :class:`Reload`. No value of a setting is told, only names."""

    type: Literal["reloaded"] = "reloaded"
    number: Number
    """Of the question."""
    file: Sentence
    """That the settings stand in; empty if they come from the environment alone."""
    since: Moment
    """When those in force were read."""
    changed: list[Name] = Field(default_factory=list, max_length=MOST_SETTINGS)
    restart: list[Name] = Field(default_factory=list, max_length=MOST_SETTINGS)
    """Settings that have another value in the file, and need a restart."""
    hidden: list[Name] = Field(default_factory=list, max_length=MOST_SETTINGS)
    """Settings that have another value in the environment, which wins over the file."""
    refused: Sentence = ""
    """Why the settings cannot be used, so that nothing has changed; empty if they can."""
    workers: Number
    """Worker processes that live."""
    following: Number
    """How many of them have said that they use the settings in force."""


ProxyMessage: TypeAlias = Register | Heartbeat | Ack | Nack | Resync | Leave | Load | Reloaded
_of_proxies: TypeAdapter[ProxyMessage] = TypeAdapter(Annotated[ProxyMessage, Field(discriminator="type")], config=LATER)


def parse_proxy(text: str | bytes) -> ProxyMessage:
    """The message of a proxy. Raises :class:`~slots.messages.message.MessageError`."""
    try:
        return _of_proxies.validate_json(text)
    except ValidationError as error:
        raise explained(error) from error


# -- what topom says -----------------------------------------------------------------------------------------------


class Registered(Message):
    """The proxy is a member; it may take tables from now on."""

    type: Literal["registered"] = "registered"
    proxy_id: int = Field(ge=1, le=LARGEST)
    product: Product
    cluster: Name
    """The id of the cluster: made with its store, and the same for all topoms and for good."""
    start: Name
    """The id of the topom since it leads."""
    heartbeat_seconds: Seconds
    """Between two heartbeats."""
    stand_down_seconds: Seconds | None
    """The allowance by which proxies stand down (:mod:`topom.proxies.standdown`); None if they need not."""
    quiet_seconds: Seconds
    """For how long a server has been silent that a heartbeat names."""
    users: KeptUsers | None = None
    """None from a topom that keeps none. Those that the proxy has had last hold on then."""


class Refused(Message):
    """The proxy may not register, or is no member any more. It is the last message of a stream."""

    type: Literal["refused"] = "refused"
    reason: Word
    """``fenced`` or ``removed``: the instance has ended, and the proxy comes back under another one. ``follower``:
    this topom does not lead. ``invalid``, and any that is not known: the proxy tries again."""
    message: Sentence
    leader: Annotated[str, Field(max_length=2000), VISIBLE] = ""
    """With ``follower``, the URL of the topom that leads, if that is known."""


class Table(Message):
    """A newer table: a whole one, or the changes since the one that was sent last over this stream."""

    type: Literal["table"] = "table"
    table: TableContent
    seal: Word = ""
    """Shows later that topom made a table of this epoch; an empty one shows nothing."""


class Heard(Message):
    """The answer to the heartbeat of that number: it came when this topom led, and the proxy was not fenced."""

    type: Literal["heard"] = "heard"
    number: Number


class Shares(Message):
    """The proxy's shares of the limits of users (:mod:`topom.proxies.limitshares`), from now on. They hold until there
    are others, also while topom is away."""

    type: Literal["shares"] = "shares"
    shares: dict[UserName, Share] = Field(max_length=MOST_LIMITED)
    connections: dict[UserName, Number] = Field(default_factory=dict, max_length=MOST_LIMITED)
    """How many connections each user may have at the proxy that may only have so many. A topom that knows of no such
    shares tells none."""


class Users(Message):
    """The users that topom keeps are these from now on. They hold until there are others, also while topom is away."""

    type: Literal["users"] = "users"
    kept: KeptUsers


class Drain(Message):
    """The proxy lets its clients go and ends."""

    type: Literal["drain"] = "drain"


class Left(Message):
    """The proxy is no member any more, as it asked. It is the last message of a stream."""

    type: Literal["left"] = "left"


class Proxies(Message):
    """The proxies that cluster clients are shown (:mod:`topom.proxies.proxylist`)."""

    type: Literal["proxies"] = "proxies"
    proxies: list[ListedProxy] = Field(max_length=MOST_PROXIES)


class TellLoad(Message):
    """The proxy answers with :class:`Load`. topom asks one question at a time, and bounds by these numbers its own
    work."""

    type: Literal["tell_load"] = "tell_load"
    number: Number
    slots: Number
    """Slots that the answer may have."""
    names: Number
    """Servers and users, together, that the answer may have."""


class Reload(Message):
    """The proxy reads its own settings anew, and answers with :class:`Reloaded`. topom sends no settings."""

    type: Literal["reload"] = "reload"
    number: Number


TopomMessage: TypeAlias = (
    Registered | Refused | Table | Heard | Drain | Left | Proxies | TellLoad | Reload | Shares | Users
)
News: TypeAlias = Heard | Proxies | TellLoad | Reload | Shares | Users
"""What topom says of anything but tables and the membership."""
_of_topom: TypeAdapter[TopomMessage] = TypeAdapter(Annotated[TopomMessage, Field(discriminator="type")], config=LATER)


def parse_topom(text: str | bytes) -> TopomMessage:
    """The message of topom. Raises :class:`~slots.messages.message.MessageError`."""
    try:
        return _of_topom.validate_json(text)
    except ValidationError as error:
        raise explained(error) from error
