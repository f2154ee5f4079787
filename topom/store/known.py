"""Dataclasses from the store's documents, which a topom of another version may have written.

While topoms are exchanged for newer ones, one of each version reads what the other wrote. Fields that this version does
not know are passed over, fields that the other one did not have take their defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Kind = TypeVar("Kind", bound="DataclassInstance")


def made(kind: type[Kind], raw: Mapping[str, Any]) -> Kind:
    """A ``kind`` of those fields in ``raw`` that it has. Raises TypeError when one without a default is missing."""
    return kind(**{field.name: raw[field.name] for field in fields(kind) if field.name in raw})
