"""What is stored of a placement: the steps of the one that is being applied, and whether it is applied by itself.

A step's state is stored before it is acted on, so that another topom goes on where this one was.
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
        server: the one that it is about.
        leads: of a copy: whether it is to become the master once it is whole.
        instead_of: of a copy: servers that go to the pool once it is whole, unless one is the master then.
        keep: of ``retire``: on how many other nodes the group has to have whole copies before.
        state: ``copying``: it was told to follow; ``joined``: it is in the group, and is yet to lead it.
        refusal: why it was dropped; None if it was not.
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
        """Whether nothing is left to be done for it."""
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
        """Whether both are the same step, however far they are."""
        return (self.round, self.group, self.kind, self.server) == (other.round, other.group, other.kind, other.server)


@dataclass(frozen=True, slots=True)
class Run:
    """A placement that is being applied: since when (1970, UTC), at whose wish, and its steps by round."""

    since: float
    who: str
    steps: tuple[Step, ...]

    @property
    def current(self) -> tuple[Step, ...]:
        """The steps of the round that is under way which are not over yet; none when all rounds are done."""
        number = min((step.round for step in self.steps if not step.over), default=0)
        return tuple(step for step in self.steps if step.round == number and not step.over)


@dataclass(frozen=True, slots=True)
class Kept:
    """Whether topom places by itself, and what it is applying; None while that is nothing."""

    auto: bool = False
    run: Run | None = None

    def to_document(self) -> dict[str, Any]:
        """As the store has it."""
        if self.run is None:
            return {"auto": self.auto}
        steps = [asdict(step) for step in self.run.steps]
        return {"auto": self.auto, "run": {"since": self.run.since, "who": self.run.who, "steps": steps}}

    @classmethod
    def from_document(cls, raw: Mapping[str, Any]) -> Kept:
        """The reverse of :meth:`to_document`; what another version has stored besides is passed over.

        Raises KeyError, TypeError or ValueError for what is none.
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
"""Of a store that knows of no placement."""
