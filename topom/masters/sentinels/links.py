"""The Sentinels that topom asks: a connection to each, and a task that asks it and keeps it in step.

The task asks what the Sentinel watches each :data:`LOOK_SECONDS`, at once if any Sentinel announces a switch, and each
:data:`HURRY_SECONDS` while one disagrees with the slot table. It tells the Sentinel what to watch, and checks that each
:data:`STEP_SECONDS`.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress

import structlog

from slots.access import ServerAccess
from slots.backoff import Backoff
from slots.failures import FAILURES
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState
from topom.masters.sentinels.link import FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS, SentinelLink
from topom.masters.sentinels.telling import Telling
from topom.masters.sentinels.watch import Watch

log = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0
"""Seconds between two questions to each Sentinel for the masters."""
HURRY_SECONDS = 0.1
"""The same while Sentinels and slot table disagree: the other Sentinels follow the first within moments."""
STEP_SECONDS = 10.0
"""Seconds between two looks at whether a Sentinel watches the right groups with the right options."""
END_SECONDS = 0.2
"""How long a cancelled task may take to end; then it is cancelled again."""


class Links(Mapping[str, SentinelLink]):
    """The links, by the Sentinel's address.

    Args:
        access: how to log in at the Sentinels.
        leads: whether this topom may change anything at this instant.

    Attributes:
        hurries: whether the Sentinels are asked more often than usual.
    """

    def __init__(
        self, ledger: Ledger, watch: Watch, telling: Telling, access: ServerAccess, leads: Callable[[], bool]
    ) -> None:
        self._watch = watch
        self._telling = telling
        self._access = access
        self._leads = leads
        self._links: dict[str, SentinelLink] = {}
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}
        self._changing = asyncio.Lock()
        self._listeners: list[Callable[[], None]] = []
        self.hurries = False
        ledger.listen(self._changed)

    def __getitem__(self, address: str) -> SentinelLink:
        return self._links[address]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._links))

    def __len__(self) -> int:
        return len(self._links)

    def listen(self, listener: Callable[[], None]) -> None:
        """Have ``listener`` called when a Sentinel has answered, or others are known than before."""
        self._listeners.append(listener)

    def to(self, address: str) -> SentinelLink:
        """A link to a Sentinel that is asked only what the caller asks it. The caller closes it."""
        return SentinelLink(address, self._access, self._leads)

    async def keep(self) -> None:
        """Have a link to each Sentinel that is known, and to no other."""
        for address in self._links.keys() - set(self._watch.sentinels):
            await self.leave(address)
        async with self._changing:
            for address in self._watch.sentinels:
                if address not in self._links:
                    link = self._links[address] = self.to(address)
                    self._tasks[address] = [
                        asyncio.create_task(self._attend(link), name=f"sentinel {address}"),
                        asyncio.create_task(link.listen(self._switched), name=f"switches of {address}"),
                    ]

    async def leave(self, address: str) -> None:
        """End the link to a Sentinel, if there is one: none of its tasks tells it anything from then on."""
        async with self._changing:
            link = self._links.pop(address, None)
            if link is None:
                return
            await _end(self._tasks.pop(address))
            with suppress(*FAILURES):
                await link.close()

    async def close(self) -> None:
        """End all links."""
        for address in self:
            await self.leave(address)

    def begin_again(self) -> None:
        """Let every Sentinel be brought into step soon."""
        for link in self._links.values():
            link.due = True
        self.ask()

    def ask(self) -> None:
        """Let every Sentinel be asked at once."""
        for link in self._links.values():
            link.wake.set()
        self._tell()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

    def _changed(self, old: ClusterState, new: ClusterState) -> None:
        if old.sentinels is not new.sentinels or old.table.groups != new.table.groups:
            self.begin_again()

    def _switched(self, name: str) -> None:
        if self._watch.group_of(name) is not None:
            log.info("switch_announced", name=name)
            self.ask()

    async def _attend(self, link: SentinelLink) -> None:
        """Ask one Sentinel again and again, and keep it in step."""
        backoff = Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS)
        loop = asyncio.get_running_loop()
        while True:
            link.wake.clear()
            try:
                await link.look([self._watch.name_of(group_id) for group_id in self._watch.masters])
                self._tell()
                if link.due or loop.time() >= link.step_at:
                    link.due = False
                    link.step_at = loop.time() + STEP_SECONDS
                    await self._telling.keep_in_step(link)
            except Exception as error:
                # Only failures to reach it are expected. After any error this Sentinel is asked again.
                if not isinstance(error, FAILURES):
                    log.exception("sentinel_not_understood", sentinel=link.address)
                link.lost(error)
                link.due = True
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            with suppress(TimeoutError):
                async with asyncio.timeout(HURRY_SECONDS if self.hurries else LOOK_SECONDS):
                    await link.wake.wait()


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait for their end. A client of redis-py may take a cancellation for a failure of its own."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=END_SECONDS)
