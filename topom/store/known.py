"""Makes records from the store's documents, which a topom of another version may have written.

During an upgrade, topoms of two versions read what the other has written. Fields that this version does not know are
passed over; fields that the other version did not have take their defaults. The value of each field is checked against
its type, so that topom does not go by an odd value.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter

Kind = TypeVar("Kind")


def made(kind: type[Kind], raw: Mapping[str, Any]) -> Kind:
    """A ``kind`` with those fields of ``raw`` that it has.

    Raises:
        ValueError: a field without a default is missing, or a value has the wrong type.
    """
    found: Kind = _adapter(cast(Hashable, kind)).validate_python(raw)
    return found


@cache
def _adapter(kind: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast(Any, kind))
