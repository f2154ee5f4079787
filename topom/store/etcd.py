"""The store in etcd, version 3.4 or later, over its JSON gateway (:mod:`topom.store.etcd_gateway`).

| key | holds |
|---|---|
| ``PREFIX/documents/stamp``, and so for ``sizes`` | number and id of the last write |
| ``PREFIX/documents/cells/NAME`` | the documents' cells (:mod:`topom.store.books`) |
| ``PREFIX/leader`` | the leader, as long as its lease holds |

The mark of a book is the revision in which etcd last changed its stamp; the term of a leader is the revision in which
it was elected. Reads are linearizable, and of one revision, however many calls they take.
"""

import asyncio
import contextlib
import math
from collections.abc import Collection, Mapping
from typing import Any

from topom.store import STATE, Leader, StoreError
from topom.store.books import Mismatch, Snapshot
from topom.store.etcd_gateway import Compacted, EtcdGateway, NotFound, decode, encode
from topom.store.lease import RELEASE_SECONDS, Lease, LeaseGone, clock
from topom.store.shared import LOOK_SECONDS, SharedStore, announced, announcement

PAGE_KEYS = 200
"""How many keys one call reads."""
FETCH_TRIES = 5
"""How often a read is tried if etcd is compacted meanwhile."""


class EtcdCells:
    """:class:`~topom.store.books.Cells` under ``prefix``."""

    most_cells = 120
    """etcd takes 128 operations in a transaction unless it is told otherwise."""
    most_bytes = 1_200_000
    """etcd takes requests of 1.5 MiB unless it is told otherwise."""

    def __init__(self, gateway: EtcdGateway, prefix: str) -> None:
        self._gateway = gateway
        self._prefix = prefix

    def stamp_key(self, book: str) -> bytes:
        """The key of a book's stamp."""
        return f"{self._prefix}/{book}/stamp".encode()

    async def look(self, book: str) -> tuple[int, bytes]:
        answer = await self._gateway.ask("kv/range", {"key": encode(self.stamp_key(book))})
        return _stamp(answer)

    async def fetch(self, book: str) -> Snapshot:
        for _ in range(FETCH_TRIES):
            with contextlib.suppress(Compacted):
                return await self._fetch(book)
        raise StoreError("etcd is compacted faster than it can be read; have it keep revisions for longer")

    async def _fetch(self, book: str) -> Snapshot:
        answer = await self._gateway.ask("kv/range", {"key": encode(self.stamp_key(book))})
        mark, stamp = _stamp(answer)
        revision = answer["header"]["revision"]
        folder = f"{self._prefix}/{book}/cells/".encode()
        cells: dict[str, bytes] = {}
        start = folder
        while True:
            answer = await self._gateway.ask(
                "kv/range",
                {
                    "key": encode(start),
                    "range_end": encode(folder[:-1] + b"0"),  # the byte after the slash
                    "limit": str(PAGE_KEYS),
                    "revision": revision,
                },
            )
            page = answer.get("kvs", [])
            for entry in page:
                start = decode(entry["key"])
                cells[start.removeprefix(folder).decode()] = decode(entry.get("value", ""))
            if not answer.get("more"):
                return Snapshot(mark, stamp, cells)
            start += b"\0"

    async def fetch_some(self, book: str, mark: int, names: Collection[str]) -> Mapping[str, bytes]:
        # The mark is the revision of the stamp's last change; the cells of that write are there as of that revision.
        cells: dict[str, bytes] = {}
        wanted = sorted(names)
        for at in range(0, len(wanted), self.most_cells):
            keys = [
                encode(f"{self._prefix}/{book}/cells/{name}".encode()) for name in wanted[at : at + self.most_cells]
            ]
            reads = [{"request_range": {"key": key, "revision": str(mark)}} for key in keys]
            try:
                answer = await self._gateway.ask("kv/txn", {"success": reads})
            except Compacted:
                raise Mismatch from None
            for response in answer.get("responses", []):
                for entry in response["response_range"].get("kvs", []):
                    name = decode(entry["key"]).rpartition(b"/")[2].decode()
                    cells[name] = decode(entry.get("value", ""))
        return cells

    async def apply(self, book: str, mark: int, stamp: bytes | None, cells: Mapping[str, bytes | None]) -> int:
        key = encode(self.stamp_key(book))
        operations = [self._operation(book, name, value) for name, value in cells.items()]
        if stamp is not None:
            operations.append({"request_put": {"key": key, "value": encode(stamp)}})
        # epochs: the write counts only if no other write came since it was made.
        compare = {"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": str(mark)}
        answer = await self._gateway.change("kv/txn", {"compare": [compare], "success": operations})
        if not answer.get("succeeded"):
            raise Mismatch
        return int(answer["header"]["revision"]) if stamp is not None else mark

    def _operation(self, book: str, name: str, value: bytes | None) -> dict[str, Any]:
        key = encode(f"{self._prefix}/{book}/cells/{name}".encode())
        if value is None:
            return {"request_delete_range": {"key": key}}
        return {"request_put": {"key": key, "value": encode(value)}}


class EtcdStore(SharedStore):
    """A :class:`~topom.store.Store` in etcd, with all its keys under ``prefix``, which ends without a slash."""

    def __init__(self, gateway: EtcdGateway, prefix: str) -> None:
        cells = EtcdCells(gateway, prefix)
        super().__init__(cells)
        self._gateway = gateway
        self._prefix = prefix
        self._stamp_key = cells.stamp_key(STATE)
        self._leader_key = f"{prefix}/leader".encode()

    async def open(self) -> None:
        await self._state.look()

    async def leader(self) -> Leader | None:
        leader, _ = await self._ask_leader()
        return leader

    async def _changed(self, mark: int, seconds: float) -> None:
        await self._gateway.wait(self._stamp_key, mark + 1, seconds)

    async def _disconnect(self) -> None:
        await self._gateway.close()

    async def _ask_leader(self) -> tuple[Leader | None, int]:
        """The leader, and the revision as of which it led."""
        answer = await self._gateway.ask("kv/range", {"key": encode(self._leader_key)})
        revision = int(answer["header"]["revision"])
        for entry in answer.get("kvs", []):
            return announced(decode(entry.get("value", "")), int(entry["create_revision"])), revision
        return None, revision

    async def _stand(self, instance: str, url: str, lease_seconds: float) -> Lease:
        while True:
            leader, revision = await self._ask_leader()
            if leader is None:
                lease = await self._take(announcement(instance, url), instance, url, lease_seconds)
                if lease is not None:
                    return lease
            else:
                # A server that is cut off from the others never tells, so look again now and then.
                await self._gateway.wait(self._leader_key, revision + 1, min(lease_seconds / 2, LOOK_SECONDS))

    async def _take(self, value: bytes, instance: str, url: str, lease_seconds: float) -> Lease | None:
        """Become the leader if there is none; None if there is one."""
        granted = clock()
        answer = await self._gateway.change("lease/grant", {"TTL": str(math.ceil(lease_seconds))})
        number = str(answer["ID"])
        term = 0
        try:
            term = await self._put_leader(value, number)
        finally:
            if not term:
                # A call that failed or was cancelled may also have made us the leader.
                with contextlib.suppress(StoreError, TimeoutError):
                    async with asyncio.timeout(RELEASE_SECONDS):
                        await self._revoke(number)
        if not term:
            return None

        async def renew() -> None:
            answer = await self._gateway.ask("lease/keepalive", {"ID": number})
            if int(answer.get("TTL", 0)) <= 0:
                raise LeaseGone("etcd has ended the lease")
            # A server that once led etcd may still believe that it does, and renew: the word of most servers counts.
            now, _ = await self._ask_leader()
            if now is None or now.term != term:
                raise LeaseGone("the leader's key in etcd is another's, or gone")

        return Lease(Leader(instance, url, term), lease_seconds, granted, renew, lambda: self._revoke(number))

    async def _put_leader(self, value: bytes, lease: str) -> int:
        """The term, or 0 if another topom leads."""
        key = encode(self._leader_key)
        try:
            answer = await self._gateway.change(
                "kv/txn",
                {
                    "compare": [{"key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0"}],
                    "success": [{"request_put": {"key": key, "value": encode(value), "lease": lease}}],
                },
            )
        except NotFound:
            return 0  # it took longer than the lease
        return int(answer["header"]["revision"]) if answer.get("succeeded") else 0

    async def _revoke(self, lease: str) -> None:
        with contextlib.suppress(NotFound):
            await self._gateway.ask("lease/revoke", {"ID": lease})


def _stamp(answer: Mapping[str, Any]) -> tuple[int, bytes]:
    for entry in answer.get("kvs", []):
        return int(entry["mod_revision"]), decode(entry.get("value", ""))
    return 0, b""
