"""What all messages have in common: how they are written and checked, and the kinds of fields that several have."""

import json
from typing import Annotated, Any, NamedTuple, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from slots import fields, functions
from slots.address import is_host
from slots.fields import LARGEST
from slots.rules import SlotRule
from slots.slot import MAXIMUM_SLOTS

MOST_TEXT = 1000
"""Characters of a sentence for people; :func:`sentence` shortens a longer one."""
MOST_PROXIES = 4096
"""Proxies in one message; topom takes no more than half as many."""
MOST_SERVERS = 100_000
"""Servers that one message may name."""
MOST_COUNTERS = 100

LONGEST = 1e12
"""Seconds that any field may have: some thirty thousand years."""
LATEST = 253_402_000_000.0
"""Seconds since 1970 that any field may have: within the last year that a calendar of Python has, 9999."""


def _host(text: str) -> str:
    if not is_host(text):
        raise ValueError(f"{text!a:.100} is neither an IP address nor a host name")
    return text


def _visible(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f"{text!a:.100} has a character that cannot be shown")
    return text


def _number_of_slots(value: int) -> int:
    if not 1 <= value <= MAXIMUM_SLOTS or value & (value - 1):
        raise ValueError(f"it has to be a power of two up to {MAXIMUM_SLOTS}, and is {value}")
    return value


def _slot_function(value: str) -> str:
    if value not in functions.names():
        raise ValueError(f"{value!r:.100} is not a slot function; known are {', '.join(functions.names())}")
    return value


Number: TypeAlias = Annotated[int, Field(ge=0, le=LARGEST)]
Signed: TypeAlias = Annotated[int, Field(ge=-LARGEST - 1, le=LARGEST)]
Epoch: TypeAlias = Number
"""Of a slot table; 0 for none."""
Instance: TypeAlias = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
"""The identity of a proxy."""
Server: TypeAlias = Annotated[str, AfterValidator(fields.server)]
"""A server's address, ``host:port``."""
Host: TypeAlias = Annotated[str, AfterValidator(_host)]
"""A host name, or an IP address without brackets."""
VISIBLE = AfterValidator(_visible)
"""Of texts that people read: none of their characters changes how a terminal or a log shows the others."""
Word: TypeAlias = Annotated[str, Field(max_length=100), VISIBLE]
Name: TypeAlias = Annotated[Word, Field(min_length=1)]
Place: TypeAlias = Annotated[str, Field(max_length=300), VISIBLE]
"""Where clients connect: ``host:port``, or the path of a Unix socket."""
Port: TypeAlias = Annotated[int, Field(ge=0, le=65535)]
"""0 for none."""
Sentence: TypeAlias = Annotated[str, Field(max_length=MOST_TEXT), VISIBLE]
Seconds: TypeAlias = Annotated[float, Field(gt=0, le=LONGEST, allow_inf_nan=False)]
Time: TypeAlias = Annotated[float, Field(ge=0, le=LONGEST, allow_inf_nan=False)]
"""Seconds of the machine's clock that goes on while it is suspended; 0 for long ago."""
Moment: TypeAlias = Annotated[float, Field(ge=0, le=LATEST, allow_inf_nan=False)]
"""Seconds since 1970, by the clock of day of who says it."""
Counter: TypeAlias = Signed | Annotated[float, Field(allow_inf_nan=False)]
CounterValues: TypeAlias = Annotated[
    dict[Annotated[str, Field(max_length=100)], Counter], Field(max_length=MOST_COUNTERS)
]
"""Numbers by name."""
NumberOfSlots: TypeAlias = Annotated[int, AfterValidator(_number_of_slots)]
SlotFunction: TypeAlias = Annotated[str, AfterValidator(_slot_function)]
"""Its name in :mod:`slots.functions`."""
TableContent: TypeAlias = Annotated[dict[str, Any], Field(max_length=16)]
"""A whole table, or the changes since one, as :mod:`slots.table` writes them. Only that module looks at the content,
so that it is looked at once, however large it is."""


LATER = ConfigDict(defer_build=True)
"""Of what reads messages: it is built at its first use. So a process pays only for its own side of a conversation."""


class MessageError(Exception):
    """What came is no message of this conversation. The text says which field is wrong, and how."""


class UnknownMessage(MessageError):
    """It is a message of a type that is not known here."""


class Part(BaseModel):
    """A part of messages. Unknown fields are ignored, unless a subclass refuses them."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", hide_input_in_errors=True, **LATER)


class Product(Part):
    """What proxies have to agree on: chosen at topom's first start, and fixed since."""

    name: Name
    number_of_slots: NumberOfSlots
    slot_function: SlotFunction
    databases: int = Field(ge=1, le=2**31 - 1)


class ListedProxy(NamedTuple):
    """One of the proxies that cluster clients are shown. It is sent as a list of its fields, for there may be a
    thousand."""

    proxy_id: Number
    """0 for one that topom does not know yet."""
    host: Host
    port: Port
    tls_port: Port


class Message(Part):
    """A message of any conversation. The first field, ``type``, is the name of its kind."""

    type: str


def encode(message: Message) -> str:
    """The message as one line of JSON, in ASCII, its type first."""
    return json.dumps(message.__dict__, separators=(",", ":"), default=_fields)


def _fields(part: object) -> dict[str, Any]:
    if isinstance(part, BaseModel):
        return part.__dict__
    if isinstance(part, SlotRule):
        return part.to_wire()
    raise TypeError(f"{type(part).__name__} is no part of a message")


def explained(error: ValidationError) -> MessageError:
    """What is wrong with the first wrong field of a message, as ``type.field: what``."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "message"
    kind = UnknownMessage if first["type"] == "union_tag_invalid" and not first["loc"] else MessageError
    # bounded: it may repeat what the peer has sent.
    return kind(f"{place}: {first['msg']}"[:MOST_TEXT])


def sentence(text: str) -> str:
    """A text that fits a :data:`Sentence`: shortened if it has to be, with other characters for those that cannot be
    shown."""
    text = "".join(
        letter if letter.isprintable() else " " if letter.isspace() else "?" for letter in text[: MOST_TEXT + 1]
    )
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 3]}..."
