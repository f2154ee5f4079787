"""The conversation of a migrator with topom: one WebSocket, which the migrator holds open. Each message is one text
frame.

A migrator registers with its first message, and topom answers ``registered`` or ``refused``. Then topom has it make
copies by the replication stream (:mod:`migrator.stream`), and the migrator reports. What waits has a number: topom
counts its requests, and the migrator answers each with ``done`` or ``failed``.

The two may be of different versions of one protocol (:mod:`slots.messages.protocol`): fields that are not known are
ignored. A message of an unknown type is ignored by a migrator, and refused by topom.
"""

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, PlainValidator, TypeAdapter, ValidationError, model_validator

from slots.keyslots import KeySlots
from slots.messages.control import Refused
from slots.messages.message import (
    LATER,
    LONGEST,
    VISIBLE,
    Instance,
    Message,
    MessageError,
    Number,
    NumberOfSlots,
    Part,
    Place,
    Seconds,
    Sentence,
    Server,
    SlotFunction,
    Time,
    Word,
    explained,
)
from slots.messages.protocol import SPOKEN
from slots.replies import MOST_RUN_ID
from slots.rules import SlotRule, rules_from_wire
from slots.slot import MAXIMUM_SLOTS

PATH = "/api/v1/migrators/control"
MOST_REPLICAS = 1000
"""Of one source."""
MOST_COPIES = 1024
"""Copies that one migrator may have."""
MOST_OF_A_STREAM = 255
"""Copies that may share one stream of a source."""

CopyId: TypeAlias = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
StreamId: TypeAlias = CopyId
SlotIds: TypeAlias = Annotated[list[Annotated[int, Field(ge=0, lt=MAXIMUM_SLOTS)]], Field(max_length=MAXIMUM_SLOTS)]
SlotRules: TypeAlias = Annotated[
    tuple[SlotRule, ...], PlainValidator(lambda said: said if isinstance(said, tuple) else rules_from_wire(said))
]
"""JSON has a list of them."""
RunId: TypeAlias = Annotated[str, Field(min_length=1, max_length=MOST_RUN_ID), VISIBLE]
Milliseconds: TypeAlias = Annotated[float, Field(ge=0, le=LONGEST, allow_inf_nan=False)]

# -- what a migrator says --------------------------------------------------------------------------------------------


class RegisterMigrator(Message):
    """The first message of a connection."""

    type: Literal["register_migrator"] = "register_migrator"
    protocol: Number = SPOKEN
    """Looked at before the rest (:func:`slots.messages.protocol.check`)."""
    instance: Instance
    """Made by the process at its start."""
    hostname: Place
    pid: int = Field(ge=0, le=2**31 - 1)
    version: Word
    node: Word = ""
    """The node that it runs on, by the name that topom has for it; empty if nobody said."""
    datacenter: Word = ""


class Latency(Part):
    """As :class:`migrator.progress.ServerLatency`."""

    p99: Milliseconds | None = None
    quiet: Milliseconds | None = None
    allowed: Milliseconds = 0.0


class Held(Part):
    """How a copy is slowed down: as :class:`migrator.progress.Pacing`."""

    speed: float = Field(ge=0, le=1, allow_inf_nan=False)
    source: Latency
    target: Latency
    held_back: Sentence = ""
    since: Time = 0.0


class CopyState(Part):
    """How far a copy is.

    Attributes:
        keys, size: keys, and bytes of the commands that wrote them, since the copy began.
        lag: bytes of the stream that have come and are not written yet; None while the snapshot is not.
        held: None while there is no latency goal.
        followed: the server whose stream the copy follows; None while it follows none.
    """

    copy_id: CopyId
    keys: Number
    size: Number
    lag: Number | None = None
    held: Held | None = None
    followed: Server | None = None


class Report(Message):
    """The migrator lives, and its copies are so far. It says so once each ``report_seconds`` of
    :class:`MigratorRegistered`."""

    type: Literal["report"] = "report"
    copies: list[CopyState] = Field(max_length=MOST_COPIES)
    disk: Number | None = None
    """Bytes that are free for its spools; None if that is not known."""


class Done(Message):
    """What topom has asked for by this number is done."""

    type: Literal["done"] = "done"
    number: Number


class Failed(Message):
    """It could not be done: what :class:`migrator.errors.MigrationError` says."""

    type: Literal["failed"] = "failed"
    number: Number
    kind: Word
    what: Sentence
    to_do: Sentence = ""
    passing: bool
    of_followed: bool = False


MigratorMessage: TypeAlias = RegisterMigrator | Report | Done | Failed
_of_migrators: TypeAdapter[MigratorMessage] = TypeAdapter(
    Annotated[MigratorMessage, Field(discriminator="type")], config=LATER
)


class UnreadableReport(MessageError):
    """A report says something that none can say."""


def parse_migrator(text: str | bytes) -> MigratorMessage:
    """The message of a migrator. Raises :class:`~slots.messages.message.MessageError`."""
    try:
        return _of_migrators.validate_json(text)
    except ValidationError as error:
        wrong = explained(error)
        place = error.errors(include_url=False, include_input=False)[0]["loc"]
        raise (UnreadableReport(str(wrong)) if place[:1] == ("report",) else wrong) from error


# -- what topom says -------------------------------------------------------------------------------------------------


class MigratorRegistered(Message):
    """The migrator may be given copies from now on."""

    type: Literal["registered"] = "registered"
    report_seconds: Seconds
    """Between two reports."""


class SetPace(Message):
    """How fast all copies of this migrator together may go: as :class:`migrator.pace.PaceSettings`."""

    type: Literal["set_pace"] = "set_pace"
    keys_per_second: Number
    bytes_per_second: Number
    latency_goal_milliseconds: Milliseconds
    paused: bool


class BeginCopy(Message):
    """There is a copy of these slots. topom has made source and target ready for it
    (:func:`migrator.stream.running.make_ready`).

    The copies of one stream have the same source, process of it, and replicas, and a target each. The stream begins
    with the first :class:`NearlyLevel` of any of them. So all of them have to have begun by then: one that comes later
    is not made, nor one of another source, and its own NearlyLevel fails.
    """

    type: Literal["begin_copy"] = "begin_copy"
    copy_id: CopyId
    stream_id: StreamId
    """Made by topom: of the replication stream that this copy shares. At most :data:`MOST_OF_A_STREAM` copies do."""
    source: Server
    target: Server
    source_run_id: RunId
    target_run_id: RunId
    """By the same addresses the migrator may reach other servers than topom."""
    replicas: list[Server] = Field(max_length=MOST_REPLICAS)
    """Of the source: one of them is followed in its place if it can be."""
    slots: SlotIds
    slot_function: SlotFunction
    number_of_slots: NumberOfSlots
    slot_rules: SlotRules = ()
    """In force when the copy begins."""
    instance: Instance
    """Of topom: part of the names of connections."""
    term: Number

    @model_validator(mode="after")
    def _has_its_slots(self) -> Self:
        if any(slot >= self.number_of_slots for slot in self.slots):
            raise ValueError(f"a slot is not below {self.number_of_slots}")
        return self

    @property
    def key_slots(self) -> KeySlots:
        """Which slot each key has."""
        return KeySlots(self.slot_function, self.number_of_slots, self.slot_rules)


class NearlyLevel(Message):
    """Answer once the copy is nearly level."""

    type: Literal["nearly_level"] = "nearly_level"
    number: Number
    copy_id: CopyId


class Settle(Message):
    """Answer once **level** holds for these slots, which are locked."""

    type: Literal["settle"] = "settle"
    number: Number
    copy_id: CopyId
    slots: SlotIds


class KeepOnly(Message):
    """Copy no other slots from now on. It is not answered."""

    type: Literal["keep_only"] = "keep_only"
    copy_id: CopyId
    slots: SlotIds


class CloseCopy(Message):
    """End the copy, and answer once it has ended."""

    type: Literal["close_copy"] = "close_copy"
    number: Number
    copy_id: CopyId


CopyRequest: TypeAlias = BeginCopy | NearlyLevel | Settle | KeepOnly | CloseCopy
ToMigrator: TypeAlias = MigratorRegistered | Refused | SetPace | CopyRequest
_to_migrators: TypeAdapter[ToMigrator] = TypeAdapter(Annotated[ToMigrator, Field(discriminator="type")], config=LATER)


def parse_to_migrator(text: str | bytes) -> ToMigrator:
    """The message of topom. Raises :class:`~slots.messages.message.MessageError`."""
    try:
        return _to_migrators.validate_json(text)
    except ValidationError as error:
        raise explained(error) from error
