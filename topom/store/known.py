"""Dataclasses from the store's documents, which a topom of another version may have written.

While topoms are exchanged for newer ones, one of each version reads what the other wrote. Fields that this version does
not know are passed over, fields that the other one did not have take their defaults. What a field holds is checked by
its type: nothing is built upon what is odd.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter

Kind = TypeVar("Kind")


def made(kind: type[Kind], raw: Mapping[str, Any]) -> Kind:
    """A ``kind`` of those fields in ``raw`` that it has.

    Raises:
        ValueError: one without a default is missing, or holds what it cannot.
    """
    found: Kind = _adapter(cast(Hashable, kind)).validate_python(raw)
    return found


@cache
def _adapter(kind: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast(Any, kind))
