"""How tables are sent to proxies: each frame is made once, and encoded once, however many proxies get it."""

from collections.abc import Callable

from slots.messages.control import Table
from slots.messages.message import encode
from slots.table import SlotTable
from topom.cluster import lineage
from topom.cluster.ledger import Ledger

MOST_MADE_ANEW = 512
"""A shorter frame is encoded for the wire anew for each proxy. In characters."""


class TableFrames:
    """The frames that bring a proxy to the newest table. Each is made once, however many proxies there are."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._of: SlotTable | None = None  # the table that the frames lead to
        self._frames: dict[int, str] = {}  # by the epoch that the proxy has; 0 for the whole table
        self._framed: tuple[str, bytes] | None = None

    @property
    def table(self) -> SlotTable:
        """The newest table, to which the frames lead."""
        return self._ledger.table

    def frame(self, sent: SlotTable | None) -> str:
        """The frame for a proxy that was last sent ``sent``; None for a proxy that has no table."""
        if self.table is not self._of:
            self._of, self._frames = self.table, {}
        since = sent.epoch if sent is not None else 0
        frame = self._frames.get(since)
        if frame is None:
            content = self.table.to_wire() if sent is None else self.table.changes_since(sent)
            frame = encode(Table(table=content, seal=self._seal()))
            self._frames[since] = frame
        return frame

    def _seal(self) -> str:
        state = self._ledger.state
        return lineage.seal(state.seal_key, state.starts[-1].writer, state.table.epoch)

    def framed(self, text: str, make: Callable[[str], bytes]) -> bytes:
        """The frame as ``make`` encodes it for the wire. The one that most proxies get is encoded once."""
        if len(text) < MOST_MADE_ANEW:
            return make(text)
        if self._framed is None or self._framed[0] is not text:
            self._framed = text, make(text)
        return self._framed[1]
