"""What is stored of a placement: the steps of the one under way, and whether topom applies placements by itself.

A step's state is stored before topom acts on it, so that another topom can go on where this one was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from topom.reasons import Reason

Kind = Literal["copy", "promote", "retire"]
Progress = Literal["waiting", "copying", "joined", "done", "dropped"]


@dataclass(frozen=True, slots=True)
class Step:
    """One change of one group.

    Attributes:
        round: from 1; a step is begun once all those of earlier rounds are over.
        group: id of the group.
        kind: ``copy``: a server of the pool becomes a replica; ``promote``: a replica becomes the master; ``retire``: a
            server that is no master goes to the pool.
        node: of ``server``.
        server: the server that the step is about.
        leads: for a copy: whether it is to become the master once it is whole.
        instead_of: for a copy: servers that go to the pool once it is whole. A server that is the master then stays.
        keep: for ``retire``: on how many other nodes the group must have whole copies before the step.
        state: ``copying``: the server was told to follow; ``joined``: it is in the group, and has yet to become its
            master.
        refusal: why the step was dropped; None if it was not.
    """

    round: int
    group: int
    kind: Kind
    node: str
    server: str
    leads: bool = False
    instead_of: tuple[str, ...] = ()
    keep: int = 1
    state: Progress = "waiting"
    refusal: Reason | None = None

    @property
    def over(self) -> bool:
        """Whether nothing is left to do for it."""
        return self.state in ("done", "dropped")

    @property
    def text(self) -> str:
        """What it does, in words."""
        if self.kind == "promote":
            return f"{self.server} on node {self.node} becomes the master of group {self.group}"
        if self.kind == "retire":
            return f"{self.server} on node {self.node} leaves group {self.group} and goes to the pool"
        leading = ", then its master" if self.leads else ""
        gone = f", and {', '.join(self.instead_of)} then goes to the pool" if self.instead_of else ""
        return f"{self.server} on node {self.node} becomes a replica of group {self.group}{leading}{gone}"

    def is_same(self, other: Step) -> bool:
        """Whether both are the same step, at any progress."""
        return (self.round, self.group, self.kind, self.server) == (other.round, other.group, other.kind, other.server)


@dataclass(frozen=True, slots=True)
class Run:
    """A placement under way: since when (1970, UTC), who asked for it, and its steps by round."""

    since: float
    who: str
    steps: tuple[Step, ...]

    @property
    def current(self) -> tuple[Step, ...]:
        """The steps of the present round that are not over yet; none when all rounds are done."""
        number = min((step.round for step in self.steps if not step.over), default=0)
        return tuple(step for step in self.steps if step.round == number and not step.over)


@dataclass(frozen=True, slots=True)
class Kept:
    """Whether topom places by itself, and the run that it applies; None while it applies none."""

    auto: bool = False
    run: Run | None = None

    def to_document(self) -> dict[str, Any]:
        """The document as the store has it."""
        if self.run is None:
            return {"auto": self.auto}
        steps = [asdict(step) for step in self.run.steps]
        return {"auto": self.auto, "run": {"since": self.run.since, "who": self.run.who, "steps": steps}}

    @classmethod
    def from_document(cls, raw: Mapping[str, Any]) -> Kept:
        """The reverse of :meth:`to_document`. Fields that only another version knows are passed over.

        Raises KeyError, TypeError or ValueError for any other document.
        """
        run = raw.get("run")
        if run is None:
            return cls(bool(raw["auto"]))
        known = {field.name for field in fields(Step)}
        steps = []
        for one in run["steps"]:
            step = {name: value for name, value in one.items() if name in known}
            refusal = None if one.get("refusal") is None else Reason.from_document(one["refusal"])
            steps.append(Step(**{**step, "instead_of": tuple(one.get("instead_of", ())), "refusal": refusal}))
        return cls(bool(raw["auto"]), Run(float(run["since"]), str(run["who"]), tuple(steps)))


NOTHING_KEPT = Kept()
"""What a store without any placement holds."""
