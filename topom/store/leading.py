"""What a topom may do while it leads, and what keeps a former leader from doing harm.

Of several topoms over one store one leads for a *term*: it holds a lease there. A process may be paused between any two
lines, for longer than its lease, and then go on as if nothing had happened. So the harm that a late leader can do is
bounded in these ways. Only the first one needs the late leader to notice anything in time:

- Before each write, and before each act on a server, a topom looks at its clock (:class:`LedStore`,
  :meth:`topom.term.service.Topom.leads`). That leaves the instant between the look and the act.
- **epochs**: a new leader first writes to the store. From then on the store refuses every write of the state by the
  former leader. So it also refuses every step of every batch, every new member and every fence, for each is stored
  before it is done.
- A proxy holds one control stream, and refuses tables that are older than its own. A late leader can only send proxies
  tables that it stored while it led, and these are older than those of its successor.
- A migrator lets each server note its term before it does anything there. A server that has noted a later term turns it
  away, and the connections of migrators of earlier terms are ended (:mod:`migrator.terms`). So a late migrator can move
  no key either way, and cannot take back a permit from its successor.
- A late fence concerns a proxy whose fence is stored, so the successor puts it up, too. A fenced instance never comes
  back under the same id, so it does not matter when that happens, or how often.
- A late ``REPLICAOF`` can make a server a replica although the successor has made it, or left it, the master. Then no
  client can write to the group, for proxies send to the master that the table names. What only that server had is lost
  if it is filled from the other. The successor heals that: a change of masters stays stored until all of the group's
  servers follow the master, and until then the successor makes the table's master a master again
  (:mod:`topom.masters.followers`). A late ``REPLICAOF NO ONE`` makes a second master that no table names, so no proxy
  writes to it; the successor makes it a replica again.
- The check before slots move (:mod:`migrator.checks`) writes a trial key, which expires within seconds.
- A late answer to a proxy's heartbeat counts from when the proxy sent the heartbeat, and the leader looked at its clock
  after that. So it allows the proxy no more than the time for which the successor waits
  (:mod:`topom.proxies.standdown`).
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
    """A store as one term sees it: reads pass always, writes only while ``leads`` is true. It opens and closes nothing.

    Otherwise writes raise :class:`~topom.errors.NotLeading`.
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
