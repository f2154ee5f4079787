"""The store in ZooKeeper, version 3.5 or later, over kazoo (:mod:`topom.store.zookeeper_session`).

| node | holds |
|---|---|
| ``PREFIX/documents/stamp``, and so for ``sizes`` | number and id of the last write |
| ``PREFIX/documents/cells/NAME`` | the documents' cells (:mod:`topom.store.books`) |
| ``PREFIX/election/c-NUMBER`` | a candidate, until its session ends; the one with the lowest number leads |

The mark of a book is its stamp's version; the term of a leader is the transaction that made its node. Reads wait until
the server has what was written before them (``sync``), and are made again if something was written meanwhile.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from topom.store import BOOKS, STATE, Leader, StoreError
from topom.store.books import Mismatch, Snapshot
from topom.store.lease import Lease, LeaseGone, clock
from topom.store.shared import LOOK_SECONDS, SharedStore, announced, announcement
from topom.store.zookeeper_session import Bell, Request, ZooKeeperAccess, ZooKeeperSession

WINDOW = 200
"""How many reads are under way at a time."""
FETCH_TRIES = 30
"""How often a read is tried if something is written meanwhile."""
APPLY_TRIES = 5
"""How often a write is tried if it is not known which cells exist."""
SESSION_LEASES = 4 / 3
"""The time-out of the leader's session, in leases. ZooKeeper's leader ends sessions, and the other servers tell it only
now and then which sessions they have heard. The time-out counts from then, so it may be up to a quarter of the shortest
possible session off."""


class ZooKeeperCells:
    """:class:`~topom.store.books.Cells` under ``prefix``."""

    most_cells = 2_000
    most_bytes = 800_000
    """A server takes requests of 1 MiB unless it is told otherwise."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.session: ZooKeeperSession | None = None
        self._names: dict[str, set[str]] = {}  # the cells that exist, as far as is known

    def stamp_path(self, book: str) -> str:
        """The path of a book's stamp."""
        return f"{self._prefix}/{book}/stamp"

    async def make(self) -> None:
        """Make the nodes that must exist before anything is written. Raises :class:`StoreError`."""
        paths = [f"{self._prefix}/election"]
        for book in BOOKS:
            paths += [f"{self._prefix}/{book}", f"{self._prefix}/{book}/cells", self.stamp_path(book)]
        parts = self._prefix.split("/")
        for path in ["/".join(parts[: length + 1]) for length in range(1, len(parts))] + paths:
            await self._make(path)

    async def _make(self, path: str) -> None:
        if await self._call(lambda client: client.exists_async(path)) is None:
            try:
                await self._call(lambda client: client.create_async(path))
            except NodeExistsError:
                return

    async def look(self, book: str) -> tuple[int, bytes]:
        path = self.stamp_path(book)
        try:
            _, (value, stat) = await self._calls(
                [lambda client: client.sync_async(path), lambda client: client.get_async(path)]
            )
        except NoNodeError:
            raise self._gone() from None
        return stat.version, value

    async def fetch(self, book: str) -> Snapshot:
        for _ in range(FETCH_TRIES):
            mark, stamp = await self.look(book)
            names = await self._children(book)
            try:
                cells = await self._read(book, names)
            except NoNodeError:
                continue
            if (await self.look(book))[0] == mark:
                self._names[book] = set(names)
                return Snapshot(mark, stamp, cells)
        raise StoreError(f"the {book} in ZooKeeper change faster than they can be read")

    async def fetch_some(self, book: str, mark: int, names: Collection[str]) -> Mapping[str, bytes]:
        cells: dict[str, bytes] = {}
        wanted = sorted(names)
        for at in range(0, len(wanted), WINDOW):
            window = wanted[at : at + WINDOW]
            for name, found in zip(
                window, await asyncio.gather(*(self._one(book, name) for name in window)), strict=True
            ):
                if found is not None:
                    cells[name] = found
        if (await self.look(book))[0] != mark:
            raise Mismatch
        return cells

    async def _one(self, book: str, name: str) -> bytes | None:
        """A cell; None if it does not exist."""
        try:
            value, _ = await self._call(_get(f"{self._prefix}/{book}/cells/{name}"))
        except NoNodeError:
            return None
        return bytes(value)

    async def _children(self, book: str) -> list[str]:
        folder = f"{self._prefix}/{book}/cells"
        try:
            return list(await self._call(lambda client: client.get_children_async(folder)))
        except NoNodeError:
            raise self._gone() from None

    async def _read(self, book: str, names: Sequence[str]) -> dict[str, bytes]:
        cells: dict[str, bytes] = {}
        for at in range(0, len(names), WINDOW):
            window = names[at : at + WINDOW]
            values = await self._calls([_get(f"{self._prefix}/{book}/cells/{name}") for name in window])
            cells |= {name: value for name, (value, _) in zip(window, values, strict=True)}
        return cells

    async def apply(self, book: str, mark: int, stamp: bytes | None, cells: Mapping[str, bytes | None]) -> int:
        for _ in range(APPLY_TRIES):
            if book not in self._names:
                self._names[book] = set(await self._children(book))
            there = self._names.pop(book)  # not to be relied on until the outcome is known
            outcome = await self._commit(book, mark, stamp, cells, there)
            if isinstance(outcome[0], BadVersionError):
                raise Mismatch
            if any(isinstance(result, NoNodeError | NodeExistsError) for result in outcome):
                continue  # nothing was changed; another topom has added or deleted cells
            for result in outcome:
                if isinstance(result, Exception):
                    raise StoreError(f"ZooKeeper did not take a write to the {book}: {result!r}")
            put = {name for name, value in cells.items() if value is not None}
            self._names[book] = (there | put) - (cells.keys() - put)
            return mark if stamp is None else int(outcome[0].version)
        raise StoreError(f"the {book} in ZooKeeper change all the time: is something else using {self._prefix}?")

    async def _commit(
        self, book: str, mark: int, stamp: bytes | None, cells: Mapping[str, bytes | None], there: Collection[str]
    ) -> list[Any]:
        def request(client: KazooClient) -> Any:
            transaction = client.transaction()
            # epochs: the write counts only if no other write came since it was made.
            if stamp is None:
                transaction.check(self.stamp_path(book), mark)
            else:
                transaction.set_data(self.stamp_path(book), stamp, mark)
            for name, value in cells.items():
                path = f"{self._prefix}/{book}/cells/{name}"
                if value is None:
                    if name in there:
                        transaction.delete(path)
                elif name in there:
                    transaction.set_data(path, value)
                else:
                    transaction.create(path, value)
            return transaction.commit_async()

        return list(await self._call(request))

    async def _call(self, request: Request) -> Any:
        return (await self._calls([request]))[0]

    async def _calls(self, requests: Sequence[Request]) -> list[Any]:
        if self.session is None:
            raise StoreError("the store in ZooKeeper is not open")
        return await self.session.calls(requests)

    def _gone(self) -> StoreError:
        return StoreError(f"ZooKeeper has no {self._prefix} any more: restore it from a backup, or start topom anew")


class ZooKeeperStore(SharedStore):
    """A :class:`~topom.store.Store` in ZooKeeper, with all its nodes under ``prefix``, which ends without a slash."""

    def __init__(self, access: ZooKeeperAccess, prefix: str) -> None:
        self._cells = ZooKeeperCells(prefix)
        super().__init__(self._cells)
        self._access = access
        self._stamp_path = self._cells.stamp_path(STATE)
        self._election = f"{prefix}/election"
        self._bell: Bell | None = None

    async def open(self) -> None:
        if self._cells.session is None:
            self._cells.session = ZooKeeperSession(self._access, 2 * self._access.seconds)
        await self._cells.make()

    async def leader(self) -> Leader | None:
        session = self._opened()
        await session.call(lambda client: client.sync_async(self._election))
        while candidates := await self._candidates(session):
            first = f"{self._election}/{candidates[0]}"
            try:
                value, stat = await session.call(_get(first))
            except NoNodeError:
                continue  # bounded: this one is gone, and the next one is younger
            return announced(value, stat.czxid)
        return None

    async def _changed(self, mark: int, seconds: float) -> None:
        if self._bell is None:
            self._bell = Bell()
        bell = self._bell
        try:
            _, stat = await self._opened().call(lambda client: client.get_async(self._stamp_path, bell.ring))
        except (NoNodeError, StoreError):
            return
        if stat.version == mark:
            await bell.wait(seconds)

    async def _disconnect(self) -> None:
        if self._cells.session is not None:
            await self._cells.session.stop()

    async def _candidates(self, session: ZooKeeperSession) -> list[str]:
        try:
            names = await session.call(lambda client: client.get_children_async(self._election))
        except NoNodeError:
            raise StoreError(f"ZooKeeper has no {self._election} any more: start topom anew") from None
        return sorted(names, key=lambda name: int(name.rpartition("-")[2]))

    def _opened(self) -> ZooKeeperSession:
        if self._cells.session is None:
            raise StoreError("the store in ZooKeeper is not open")
        return self._cells.session

    async def _stand(self, instance: str, url: str, lease_seconds: float) -> Lease:
        leases: list[Lease] = []

        def lost() -> None:
            for lease in leases:
                lease.end()

        session = ZooKeeperSession(self._access, SESSION_LEASES * lease_seconds, lost)
        try:
            value = announcement(instance, url)
            path = await self._wait_for_turn(session, value, lease_seconds)

            async def confirm() -> int:
                # This is a write, so most servers must agree that the session goes on.
                try:
                    stat = await session.call(lambda client: client.set_async(path, value))
                except NoNodeError:
                    raise LeaseGone("ZooKeeper has ended the session") from None
                return int(stat.czxid)

            async def renew() -> None:
                await confirm()

            granted = clock()
            term = await confirm()
        except BaseException:
            await session.stop()
            raise
        lease = Lease(Leader(instance, url, term), lease_seconds, granted, renew, session.stop)
        leases.append(lease)
        return lease

    async def _wait_for_turn(self, session: ZooKeeperSession, value: bytes, lease_seconds: float) -> str:
        """Make a node and wait until it is the first one; gives its path."""
        bell = Bell()
        try:
            path: str = await session.call(
                lambda client: client.create_async(f"{self._election}/c-", value, ephemeral=True, sequence=True)
            )
        except NoNodeError:
            raise StoreError(f"ZooKeeper has no {self._election} any more: start topom anew") from None
        mine = path.rpartition("/")[2]
        while True:
            candidates = await self._candidates(session)
            if mine not in candidates:
                raise StoreError("ZooKeeper has ended the session")
            at = candidates.index(mine)
            if at == 0:
                return path
            before = f"{self._election}/{candidates[at - 1]}"
            if await session.call(_exists(before, bell)) is not None:
                await bell.wait(min(lease_seconds / 2, LOOK_SECONDS))


def _get(path: str) -> Request:
    return lambda client: client.get_async(path)


def _exists(path: str, bell: Bell) -> Request:
    return lambda client: client.exists_async(path, bell.ring)
