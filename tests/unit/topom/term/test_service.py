"""newest-store: a term does nothing to servers while proxies that it knows could still say that its store is older."""

import asyncio
from pathlib import Path

import pytest

from slots.messages.control import KnownTable, Register, TopomMessage
from tests.unit.topom.operators import eventually
from tests.unit.topom.topom_fakes import MemoryStore
from topom.cluster import lineage
from topom.cluster.lineage import StoreIsOlder
from topom.errors import NotLeading
from topom.proxies.member import Refused
from topom.term.service import Topom
from topom.term.settings import TopomSettings


class SilentLink:
    """A connection to a proxy that says nothing."""

    def wake(self) -> None: ...

    def say(self, message: TopomMessage) -> None: ...

    def end(self, message: TopomMessage | None) -> None: ...


ACTING = [
    ("identities", "look"), ("masters", "look"), ("actions", "look"), ("actions", "follow_clock"), ("sweeps", "look"),
    ("promotions", "run"), ("gone", "look"), ("filling", "look"), ("strays", "look"), ("placements", "_look"),
    ("departures", "look"), ("server_departures", "look"), ("digests", "look"),
]  # fmt: skip


def registration(topom: Topom, start: str = "") -> Register:
    state = topom.ledger.state
    start, epoch = start or state.starts[-1].writer, state.table.epoch
    seal = lineage.seal(state.seal_key, start, epoch)
    known = KnownTable(cluster=state.cluster_id, start=start, epoch=epoch, seal=seal)
    return Register(instance="a" * 32, address="p:1", hostname="h", pid=1, workers=1, version="0", epoch=0, known=known)


def watched(topom: Topom, monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str]]:
    """Which loops have begun."""
    begun: set[tuple[str, str]] = set()
    for part, name in ACTING:
        owner, key = getattr(topom, part), (part, name)

        def noted(*arguments: object, real: object = getattr(owner, name), key: tuple[str, str] = key) -> object:
            begun.add(key)
            return real(*arguments)  # type: ignore[operator]

        monkeypatch.setattr(owner, name, noted)
    return begun


@pytest.mark.parametrize("older", [False, True])
async def test_no_loop_that_acts_begins_before_known_proxies_have_spoken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, older: bool
) -> None:
    """given a store that knows of a proxy; if that has a newer table, none begins at all."""
    store, settings = MemoryStore(), TopomSettings(data=tmp_path, number_of_slots=16, proxy_lease_seconds=3600)
    former = Topom(settings, store)
    await former.start()
    await former.members.register(registration(former), SilentLink())
    topom = Topom(settings, store)
    begun = watched(topom, monkeypatch)
    await topom.start()
    task = asyncio.create_task(topom.run())
    await eventually(lambda: topom.health.looked.is_set())
    assert begun == set()
    if older:
        with pytest.raises(Refused):
            await topom.members.register(registration(topom, "of a later start"), SilentLink())
        with pytest.raises(ExceptionGroup) as caught:
            await task
        assert [type(error) for error in caught.value.exceptions] == [StoreIsOlder]
        assert begun == set()
        # The proxy may have ended by the time of the next start.
        with pytest.raises(StoreIsOlder, match="the proxy at p:1 on h has a table"):
            await Topom(settings, store).start()
    else:
        await topom.members.register(registration(topom), SilentLink())
        await eventually(lambda: begun == set(ACTING))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await topom.close()


async def test_who_waits_for_proxies_is_sent_away_when_the_term_ends(tmp_path: Path) -> None:
    store, settings = MemoryStore(), TopomSettings(data=tmp_path, number_of_slots=16, proxy_lease_seconds=3600)
    former = Topom(settings, store)
    await former.start()
    await former.members.register(registration(former), SilentLink())
    topom = Topom(settings, store)
    await topom.start()
    waiting = asyncio.create_task(topom.members.newest.settled())
    await asyncio.sleep(0)
    topom.retire()
    async with asyncio.timeout(60):
        with pytest.raises(NotLeading):
            await waiting
    await topom.close()
