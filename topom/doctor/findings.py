"""What the doctor may find, as rules, and what it has found."""

from dataclasses import dataclass
from enum import StrEnum
from string import Formatter


class Severity(StrEnum):
    """How much a finding hurts; the worst first."""

    CRITICAL = "critical"
    """Data is lost, or clients are refused, now or at the next ordinary fault."""
    WARNING = "warning"
    """A fault, a move of slots or some growth turns it into harm."""
    NOTE = "note"
    """It costs something, and may be meant."""

    @property
    def rank(self) -> int:
        """Its place; the worst has 0."""
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that will hurt.

    Attributes:
        rule: the name of its rule.
        subject: what it is about, such as ``server 10.0.0.1:6379 (master of group 1)``.
        seen: what is seen.
        harm: what it does to those who use the cluster.
        remedy: what to do, with the command.
    """

    rule: str
    severity: Severity
    subject: str
    seen: str
    harm: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Rule:
    """What may be found. Its texts have names in braces for what differs from case to case."""

    name: str
    severity: Severity
    seen: str
    harm: str
    remedy: str

    def of(self, subject: str, **values: object) -> Finding:
        """The finding of this rule about something."""
        texts = (text.format(**values) for text in (self.seen, self.harm, self.remedy))
        return Finding(self.name, self.severity, subject, *texts)

    def in_general(self) -> tuple[str, str, str]:
        """Its texts for a page: what differs from case to case is a word in capitals."""
        seen, harm, remedy = (
            "".join(fixed + (name or "").upper().replace("_", "-") for fixed, name, _, _ in Formatter().parse(text))
            for text in (self.seen, self.harm, self.remedy)
        )
        return seen, harm, remedy
