"""Which keys to read, and which of their columns."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Selection:
    """Which keys and which of their columns to read.

    Attributes:
        columns: names, in order, and whether each may be null.
        types: types of keys; all if empty.
        slots: slots of keys; None for all.
        fraction: the share of the keys to sample.
    """

    columns: tuple[tuple[str, bool], ...]
    types: tuple[str, ...] = ()
    slots: frozenset[int] | None = None
    fraction: float = 1.0
    names: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", frozenset(name for name, _ in self.columns))

    @property
    def is_by_name(self) -> bool:
        """Whether a key's name can exclude it, so that the name should be known before the look."""
        return self.slots is not None or self.fraction < 1
