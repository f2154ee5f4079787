"""What a topom may do while it leads, and what keeps one that led from doing harm.

Of several topoms over one store one leads, for a *term*: it holds a lease there. A process may be paused between any
two lines, for longer than its lease, and go on as if nothing had been. So what follows from having led is bounded in
these ways, none of which asks the late one to notice anything in time, but the first:

- Before each write, and before each act on a server, it looks at its clock (:class:`LedStore`,
  :meth:`topom.term.service.Topom.leads`). That leaves the instant between the look and the act.
- **epochs**: whoever comes to lead writes to the store first. Every later write of the state by the one before is
  refused, and by that every step of every batch, every new member and every fence, for each is stored before it is
  done.
- A proxy holds one control stream, and refuses tables older than its own: what a late leader still says to proxies
  are tables that it stored while it led, older than those of its successor.
- A migrator has each server note its term before it does anything there, and is turned away where a later one is noted;
  the connections of those of earlier terms are ended (:mod:`migrator.terms`). So a late migrator can move no key,
  whichever way it went, and take no permit back from its successor.
- A late fence concerns a proxy whose fence is stored, which its successor therefore puts up as well. A fenced instance
  never comes back under the same id, so it does not matter when that happens, nor how often.
- A late ``REPLICAOF`` can make a server a replica that its successor has made, or left, the master. Nobody can write to
  the group then, for proxies send to whom the table names, and what only that server had is lost if it is given a copy
  of the other. The successor heals that: a change of masters stays stored until all of the group's servers follow the
  master, and until then the table's master is made a master again (:mod:`topom.masters.followers`). A late
  ``REPLICAOF NO ONE`` makes a second master that no table names, so nobody writes to it; it is made a replica again.
- What is checked before slots move (:mod:`migrator.checks`) writes a key of its own, which expires within seconds.
- A late answer to a proxy's heartbeat counts from when the proxy sent that, and the look at the clock came after; so it
  allows the proxy nothing beyond what its successor waits for (:mod:`topom.proxies.standdown`).
- Sizes that a late leader stores say when they were measured.
"""

from collections.abc import Callable, Mapping

from topom.errors import NotLeading
from topom.store import Book, Leader, Leadership, Store, Stored

OVER = "this topom does not lead; ask again, and the one that leads will answer"


class _LedBook(Book):
    def __init__(self, book: Book, leads: Callable[[], bool]) -> None:
        self._book = book
        self._leads = leads

    async def read(self) -> Stored:
        return await self._book.read()

    async def catch_up(self) -> Stored:
        return await self._book.catch_up()

    async def write(self, expected: int, version: int, documents: Mapping[str, bytes | None]) -> None:
        if not self._leads():
            raise NotLeading(OVER)
        await self._book.write(expected, version, documents)


class LedStore(Store):
    """A store as one term sees it: reads go through, writes only while ``leads`` says so. It opens and closes nothing.

    Writes raise :class:`~topom.errors.NotLeading` when it does not.
    """

    def __init__(self, store: Store, leads: Callable[[], bool]) -> None:
        self.shared = store.shared
        self._store = store
        self._leads = leads

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def book(self, name: str) -> Book:
        return _LedBook(self._store.book(name), self._leads)

    async def watch(self, version: int, seconds: float) -> int:
        return await self._store.watch(version, seconds)

    async def campaign(self, instance: str, url: str, lease_seconds: float) -> Leadership:
        return await self._store.campaign(instance, url, lease_seconds)

    async def leader(self) -> Leader | None:
        return await self._store.leader()
