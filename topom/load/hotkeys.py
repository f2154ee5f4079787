"""The keys that are asked for most: what each proxy named last, merged over all proxies.

Each proxy names the hottest keys by its own sample. A key's rate is the sum of what proxies say of it, and so is its
excess, by which the rate may be too high.

**bounded**: of all proxies together, :data:`MOST_KEPT` keys are kept; each proxy's share is the same.
"""

from collections.abc import Iterable
from heapq import nlargest
from typing import NamedTuple

from slots.messages.load import HotKey

MOST_KEPT = 32_768
"""Keys of all proxies together, some 400 bytes each."""
LEAST_KEPT = 16
"""Keys of each proxy, however many proxies there are."""
MOST_SHOWN = 100


class BusyKey(NamedTuple):
    """A key that is asked for much.

    Attributes:
        key: its first bytes (:data:`slots.messages.load.KEY_BYTES`), or a hash of it.
        length: of the whole key, in bytes.
        hashed: whether ``key`` is a hash.
        rate: requests a second, over all proxies; too high by ``excess`` at most.
        excess: requests a second.
        share: of all requests of all clients, from 0 to 1; 0 while these are not known.
    """

    database: int
    slot: int
    key: bytes
    length: int
    hashed: bool
    rate: float
    excess: float
    share: float


class _Named(NamedTuple):
    """What names a key, the same at each proxy."""

    database: int
    slot: int
    key: bytes
    length: int
    hashed: bool


class HotKeys:
    """The hot keys of each proxy."""

    def __init__(self) -> None:
        self._by_proxy: dict[int, list[tuple[_Named, float, float]]] = {}

    def take(self, proxy_id: int, keys: Iterable[tuple[HotKey, bytes]], hashed: bool) -> None:
        """Keep what a proxy says, the hottest first, in place of what it said before. Each key comes with its bytes."""
        most = max(LEAST_KEPT, MOST_KEPT // max(1, len(self._by_proxy | {proxy_id: []})))
        kept = [
            (_Named(said.database, said.slot, key, said.length, hashed), said.rate, said.excess) for said, key in keys
        ]
        self._by_proxy[proxy_id] = kept[:most]

    def end(self, proxy_id: int) -> None:
        """Forget what a proxy said."""
        self._by_proxy.pop(proxy_id, None)

    def clear(self) -> None:
        """Forget what all proxies said."""
        self._by_proxy.clear()

    def busiest(self, requests: float, most: int = MOST_SHOWN) -> list[BusyKey]:
        """The hottest first.

        Args:
            requests: of all clients, a second.
        """
        sums: dict[_Named, tuple[float, float]] = {}
        for keys in list(self._by_proxy.values()):
            for named, rate, excess in keys:
                before = sums.get(named, (0.0, 0.0))
                sums[named] = (before[0] + rate, before[1] + excess)
        hottest = nlargest(most, sums.items(), key=lambda item: item[1])
        return [
            BusyKey(*named, rate, excess, min(1.0, rate / requests) if requests > 0 else 0.0)
            for named, (rate, excess) in hottest
        ]
