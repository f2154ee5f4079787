"""Sinks: where stored events go.

To send events elsewhere takes one more sink, which ``topom/server.py`` adds to those of the node.
"""

from collections.abc import Sequence
from typing import Protocol

import structlog

from topom.cluster.events import Event
from topom.cluster.state import ClusterState

log = structlog.get_logger(__name__)


class EventSink(Protocol):
    """Takes the events that are stored.

    Every topom tells its own sinks, whether it leads and stores the events itself, or follows and reads what the leader
    has stored. So what sinks send elsewhere arrives once for each topom, and also when the leader ends before its sink
    has sent it. The receiver knows an event by its id.
    """

    def stored(self, events: Sequence[Event]) -> None:
        """Take events, after the write that stored them. Must not block, nor raise.

        Each event comes once in the life of a process, the smallest id first. Two kinds of events do not come: those
        stored before the process first read the store, and those dropped from the store before a follower could read
        them. A sink cannot ask for events again: a sink that sends later keeps a limited number of events and drops the
        rest (**bounded**).
        """

    def close(self) -> None:
        """Nothing comes any more, for the process is about to end. Must not block, nor raise."""


class EventSinks:
    """The sinks of one process. They hear of each event that any ledger of the process stores or reads, once."""

    def __init__(self) -> None:
        self._sinks: list[EventSink] = []
        self._last: int | None = None  # the newest event that the sinks have been told of, or need not be

    def add(self, sink: EventSink) -> None:
        """Tell one more sink from now on."""
        self._sinks.append(sink)

    def changed(self, old: ClusterState, new: ClusterState) -> None:
        """Tell of a change; for :meth:`topom.cluster.ledger.Ledger.listen`."""
        self.show(new, newest_event(old))

    def show(self, state: ClusterState, known: int) -> None:
        """Tell of the events of a stored state.

        Args:
            known: id of the last event that the sinks are not told of, if this is the first state that the process
                shows.
        """
        last = known if self._last is None else self._last
        self._last = max(last, newest_event(state))
        if self._last == last:
            return
        place = max(0, last + 1 - state.events[0].id)  # ids have no gaps
        for sink in self._sinks:
            try:
                sink.stored(state.events[place:])
            except Exception:
                # The other sinks have to hear of it, and the stored change holds.
                log.exception("event_sink_failed", sink=type(sink).__qualname__)

    def close(self) -> None:
        """Tell every sink that nothing comes any more."""
        for sink in self._sinks:
            sink.close()


def newest_event(state: ClusterState | None) -> int:
    """Id of the newest event; 0 without any."""
    return state.events[-1].id if state is not None and state.events else 0
