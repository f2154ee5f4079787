"""The frames of the control stream: what a proxy may send, and how tables are sent to proxies."""

import json
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from slots.table import SlotTable
from topom.cluster.ledger import Ledger

MOST_MADE_ANEW = 512
"""A shorter frame is encoded for the wire anew for each proxy. In characters."""
MOST_SERVERS = 100_000
"""How many servers one heartbeat may name."""


class _Frame(BaseModel):
    # Fields that this topom does not know are ignored, so that a newer proxy can talk to it.
    model_config = ConfigDict(frozen=True, extra="ignore")


class ClusterAddress(_Frame):
    """Where clients of cluster mode connect. A port of 0 is none."""

    host: str = Field(min_length=1, max_length=255)
    port: int = Field(ge=0, le=65535)
    tls_port: int = Field(ge=0, le=65535)


class Register(_Frame):
    """The first frame of a connection."""

    type: Literal["register"]
    instance: str = Field(pattern="^[0-9a-f]{32}$")
    address: str = Field(max_length=300)
    hostname: str = Field(max_length=300)
    pid: int = Field(ge=0)
    workers: int = Field(ge=1, le=4096)
    version: str = Field(max_length=100)
    epoch: int = Field(ge=0)
    registered_before: bool = False
    """Whether a topom has registered this instance before. If it is not a member then, it was fenced or removed
    since."""
    draining: bool = False
    stands_down: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """The allowance by which it stands down now (:mod:`topom.proxies.standdown`); None if it does not stand down."""
    cluster: ClusterAddress | None = None
    """None if the proxy is not in cluster mode. Those in cluster mode are sent ``proxies``
    (:mod:`topom.proxies.proxylist`)."""


class Heartbeat(_Frame):
    """The proxy lives. ``counters`` are shown to operators as they are; ``draining``: it lets its clients go.

    ``asked``: the epoch of the table whose servers it asks whether they answer; None while it has no table. ``silent``:
    seconds since the latest answer, for each server that has been silent for the ``quiet_seconds`` of the reply to its
    ``register``. ``unanswered``: servers that have never answered it (:mod:`topom.servers.detector`). ``stands_down``:
    as in :class:`Register`. A heartbeat with a ``number`` is answered by ``heard`` with that number, by a topom that
    leads and has the proxy as a member.
    """

    type: Literal["heartbeat"]
    epoch: int = Field(ge=0)
    counters: dict[str, Annotated[int | float, Field(allow_inf_nan=False)]] = Field(
        default_factory=dict, max_length=100
    )
    draining: bool = False
    asked: int | None = Field(default=None, ge=0)
    silent: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        default_factory=dict, max_length=MOST_SERVERS
    )
    unanswered: list[str] = Field(default_factory=list, max_length=MOST_SERVERS)
    number: int | None = Field(default=None, ge=0)
    stands_down: float | None = Field(default=None, gt=0, allow_inf_nan=False)


class Ack(_Frame):
    """All workers apply the table of ``epoch``, and have had all replies for slots that changed hands or are locked."""

    type: Literal["ack"]
    epoch: int = Field(ge=0)


class Nack(_Frame):
    """The table of ``epoch`` could not be applied in time."""

    type: Literal["nack"]
    epoch: int = Field(ge=0)
    reason: str = Field(default="", max_length=1000)


class Leave(_Frame):
    """All workers have ended, and nothing of theirs is under way."""

    type: Literal["leave"]


class Resync(_Frame):
    """Changes did not fit the proxy's table; it wants the whole one."""

    type: Literal["resync"]


ProxyFrame = Annotated[
    Register | Heartbeat | Ack | Nack | Leave | Resync,
    Field(discriminator="type"),
]
_adapter: TypeAdapter[ProxyFrame] = TypeAdapter(ProxyFrame)


def parse(text: str) -> ProxyFrame:
    """The frame that ``text`` is. Raises :class:`pydantic.ValidationError`."""
    return _adapter.validate_json(text)


class TableFrames:
    """The frames that bring a proxy to the newest table. Each is made once, however many proxies there are."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._of: SlotTable | None = None  # the table that the frames lead to
        self._frames: dict[int, str] = {}  # by the epoch that the proxy has; 0 for the whole table
        self._framed: tuple[str, bytes] | None = None

    @property
    def table(self) -> SlotTable:
        """The newest table, to which the frames lead."""
        return self._ledger.table

    def frame(self, sent: SlotTable | None) -> str:
        """The frame for a proxy that was last sent ``sent``; None for a proxy that has no table."""
        if self.table is not self._of:
            self._of, self._frames = self.table, {}
        since = sent.epoch if sent is not None else 0
        frame = self._frames.get(since)
        if frame is None:
            content: dict[str, Any] = self.table.to_wire() if sent is None else self.table.changes_since(sent)
            frame = json.dumps({"type": "table", **content}, separators=(",", ":"))
            self._frames[since] = frame
        return frame

    def framed(self, text: str, make: Callable[[str], bytes]) -> bytes:
        """The frame as ``make`` encodes it for the wire. The one that most proxies get is encoded once."""
        if len(text) < MOST_MADE_ANEW:
            return make(text)
        if self._framed is None or self._framed[0] is not text:
            self._framed = text, make(text)
        return self._framed[1]
