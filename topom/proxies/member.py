"""One proxy as topom knows it, and its connection.

The states an operator sees: ``online`` (heard of within the lease) and ``lost`` (not).
"""

from collections.abc import Mapping
from typing import Protocol

from slots.messages.control import ClusterAddress, HeldUsers, TopomMessage
from topom.cluster.state import ProxyRecord


class Refused(Exception):
    """A proxy may not register. ``reason`` and ``message`` are those of the message that says so."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Link(Protocol):
    """A proxy's connection, as the members see it. No method blocks or raises."""

    def wake(self) -> None:
        """There is a newer table to send."""

    def say(self, message: TopomMessage) -> None:
        """Send a message soon."""

    def end(self, message: TopomMessage | None) -> None:
        """Send a last message, if any, and close."""


class Member:
    """A proxy and what is known of it since this topom started."""

    def __init__(self, record: ProxyRecord, now: float) -> None:
        self.record = record
        self.link: Link | None = None
        self.heard_at = now
        """When it was last heard of, in seconds of the event loop's clock."""
        self.lost = False
        self.acked = 0
        """The newest epoch that it acknowledged."""
        self.refused: tuple[int, str] = (0, "")
        """The newest epoch that it could not apply, and why."""
        self.counters: Mapping[str, int | float] = {}
        self.met = False
        """Whether it has registered with this topom."""
        self.drains_itself = False
        """Whether the process has said that it drains. It never takes that back: what says otherwise is another
        process."""
        self.changes_rules = False
        """Whether it knows of changes of the slot rules, as far as this topom has heard."""
        self.cluster: ClusterAddress | None = None
        """Where cluster clients connect; None if it is not in cluster mode."""
        self.users: HeldUsers | None = None
        """What it says of the users that topom keeps (:mod:`topom.proxies.keptusers`); None if nothing."""
        self.parting = ("removed", "the proxy was removed")
        """Reason and message for its link, for when it stops being a member."""

    @property
    def state(self) -> str:
        """``online`` or ``lost``."""
        return "lost" if self.lost else "online"

    @property
    def draining(self) -> bool:
        """Whether it lets its clients go: it should get no new ones."""
        return self.record.draining

    @property
    def named(self) -> str:
        """How events name it."""
        return f"proxy {self.record.id} ({self.record.address} on {self.record.hostname})"

    def describe(self) -> str:
        """How messages to the operator name it."""
        return f"proxy {self.record.id} ({self.record.address} on {self.record.hostname}, {self.state})"
