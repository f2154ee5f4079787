"""What all messages have in common: how they are written and checked, and the kinds of fields that several have."""

import json
from typing import Annotated, Any, NamedTuple, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slots.fields import LARGEST
from slots.table import MAXIMUM_SLOTS

MOST_TEXT = 1000
"""Characters of a sentence for people; :func:`sentence` shortens a longer one."""
MOST_PROXIES = 4096
"""Proxies in one message; topom takes no more than half as many."""
MOST_SERVERS = 100_000
"""Servers that one message may name."""
MOST_COUNTERS = 100

LONGEST = 1e12
"""Seconds that any field may have: some thirty thousand years."""

Number: TypeAlias = Annotated[int, Field(ge=0, le=LARGEST)]
Signed: TypeAlias = Annotated[int, Field(ge=-LARGEST - 1, le=LARGEST)]
Epoch: TypeAlias = Number
"""Of a slot table; 0 for none."""
Instance: TypeAlias = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
"""The identity of a proxy."""
Server: TypeAlias = Annotated[str, Field(min_length=1, max_length=300)]
"""A server's address, ``host:port``."""
Place: TypeAlias = Annotated[str, Field(max_length=300)]
"""Where clients connect: ``host:port``, or the path of a Unix socket."""
Port: TypeAlias = Annotated[int, Field(ge=0, le=65535)]
"""0 for none."""
Sentence: TypeAlias = Annotated[str, Field(max_length=MOST_TEXT)]
Seconds: TypeAlias = Annotated[float, Field(gt=0, le=LONGEST, allow_inf_nan=False)]
Time: TypeAlias = Annotated[float, Field(ge=0, le=LONGEST, allow_inf_nan=False)]
"""Seconds of the machine's clock that goes on while it is suspended; 0 for long ago."""
Counter: TypeAlias = Signed | Annotated[float, Field(allow_inf_nan=False)]
CounterValues: TypeAlias = Annotated[
    dict[Annotated[str, Field(max_length=100)], Counter], Field(max_length=MOST_COUNTERS)
]
"""Numbers by name."""
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

    name: str = Field(min_length=1, max_length=100)
    number_of_slots: int = Field(ge=1, le=MAXIMUM_SLOTS)
    slot_function: str = Field(min_length=1, max_length=100)
    """Its name in :mod:`slots.functions`."""
    databases: int = Field(ge=1, le=2**31 - 1)


class ListedProxy(NamedTuple):
    """One of the proxies that cluster clients are shown. It is sent as a list of its fields, for there may be a
    thousand."""

    proxy_id: Number
    """0 for one that topom does not know yet."""
    host: Annotated[str, Field(min_length=1, max_length=255)]
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
    raise TypeError(f"{type(part).__name__} is no part of a message")


def explained(error: ValidationError) -> MessageError:
    """What is wrong with the first wrong field of a message, as ``type.field: what``."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "message"
    kind = UnknownMessage if first["type"] == "union_tag_invalid" and not first["loc"] else MessageError
    # bounded: it may repeat what the peer has sent.
    return kind(f"{place}: {first['msg']}"[:MOST_TEXT])


def sentence(text: str) -> str:
    """A text that fits a :data:`Sentence`: shortened if it has to be, and without characters that no text may have."""
    text = text[: MOST_TEXT + 1].encode(errors="replace").decode()
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 3]}..."
