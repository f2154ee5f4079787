"""The objects of ``/doctor``, as pydantic models."""

from pydantic import BaseModel, Field

from topom.doctor.findings import Severity


class FindingShown(BaseModel):
    """One thing that will hurt."""

    rule: str = Field(description="Its name; docs/findings.md has them all.")
    severity: Severity
    subject: str = Field(description="What it is about.")
    seen: str
    harm: str = Field(description="What it does to those who use the cluster.")
    remedy: str


class Diagnosis(BaseModel):
    """What will hurt, the worst first."""

    at: float = Field(description="When the servers were asked, in seconds since 1970, UTC.")
    servers: int = Field(description="How many there are.")
    not_asked: int = Field(description="How many of them there was no time for.")
    counts: dict[Severity, int] = Field(description="How many findings there are, also of those that are left out.")
    more: dict[str, int] = Field(description="By rule, how many findings are left out of this answer.")
    findings: list[FindingShown]
