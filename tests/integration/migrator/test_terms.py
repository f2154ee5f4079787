"""Of topoms that led one after the other, only the last one's migrators can do anything at a server, however late."""

import pytest

from migrator.connection import Connection, Timeouts
from migrator.errors import MigrationError, OtherFormat, SourceUnavailable, Superseded
from migrator.move import migrate
from migrator.pace import Pace
from migrator.pair import COPYING, WRITING
from migrator.progress import Progress
from migrator.sweep import stop
from migrator.withdrawing import withdraw
from slots.access import ServerAccess
from slots.connections import migrator_prefix
from slots.formats import SERVERS
from slots.keyslots import KeySlots
from slots.reserved import LEADER, STATE, SWEPT
from tests.integration.migrator.pairs import Pair, client_of

OLD, NEW = "0" * 32, "1" * 32
FORMER, LATTER = 2**40 + 1, 2**40 + 2
"""Terms, as large as ZooKeeper numbers them."""
SLOTS = 16


async def moved(pair: Pair, instance: str, term: int, *, back: bool = False) -> None:
    """Move every slot, as the topom of this term does."""
    source, target = (pair.target, pair.source) if back else (pair.source, pair.target)
    await migrate(
        source.address,
        target.address,
        range(SLOTS),
        key_slots=KeySlots("crc32", SLOTS),
        access=ServerAccess(),
        pace=Pace(),
        progress=Progress(),
        instance=instance,
        term=term,
    )


async def opened(pair: Pair, name: str, at_target: bool = False) -> Connection:
    """A connection as the late leader may have had it open when it was paused."""
    return await Connection.open(
        (pair.target if at_target else pair.source).address,
        name=name,
        access=ServerAccess(),
        unavailable=SourceUnavailable,
        refused=_Refused,
        timeouts=Timeouts(),
    )


class _Refused(MigrationError):
    def __init__(self, address: str, reply: str) -> None:
        super().__init__(reply)


async def test_a_late_leader_takes_no_key_from_its_owner_whichever_way_it_moved(pair: Pair) -> None:
    """The old leader was moving keys; the new one has turned that round, and is done with it."""
    async with client_of(pair.source) as source, client_of(pair.target) as target:
        await source.set("key", "moves")
        await moved(pair, OLD, FORMER)
        assert await target.get("key") == b"moves"
        late = [
            await opened(pair, f"{migrator_prefix(OLD)}100"),
            await opened(pair, f"{WRITING}{OLD}.101"),
            await opened(pair, f"{WRITING}{OLD}.102", at_target=True),
            await opened(pair, f"{migrator_prefix(OLD)}103", at_target=True),
            await opened(pair, f"{COPYING}{OLD}.104"),
        ]
        # As the new leader turns the move.
        addresses = pair.source.address, pair.target.address
        await withdraw(*addresses, access=ServerAccess(), instance=NEW, term=LATTER)
        await moved(pair, NEW, LATTER, back=True)
        await withdraw(addresses[1], addresses[0], access=ServerAccess(), instance=NEW, term=LATTER)
        assert await source.get("key") == b"moves"
        before = await source.hgetall(STATE)
        for connection in late:
            with pytest.raises(SourceUnavailable):
                await connection.call("PING")
        for act in (
            moved(pair, OLD, FORMER),
            withdraw(*addresses, access=ServerAccess(), instance=OLD, term=FORMER),
            withdraw(addresses[1], addresses[0], access=ServerAccess(), instance=OLD, term=FORMER),
        ):
            with pytest.raises(Superseded, match=f"term {LATTER}"):
                await act
        assert await source.get("key") == b"moves"
        assert await source.hgetall(STATE) == before
        assert not await target.exists("key")


@pytest.mark.parametrize("term", [0, LATTER])
@pytest.mark.parametrize("at_target", [False, True])
async def test_a_server_with_keys_of_a_later_version_is_left_alone(pair: Pair, term: int, at_target: bool) -> None:
    addresses = pair.source.address, pair.target.address
    async with client_of(pair.source) as source, client_of(pair.target) as target:
        await source.set("key", "stays")
        later = target if at_target else source
        await later.hset(LEADER, "format", SERVERS.number + 1)
        before = [await one.hgetall(name) for one in (source, target) for name in (STATE, SWEPT)]
        access = ServerAccess()
        for act in (
            moved(pair, NEW, term),
            withdraw(*addresses, access=access, instance=NEW, term=term),
            stop(addresses[at_target], access=access, instance=NEW, term=term),
        ):
            with pytest.raises(
                OtherFormat, match=f"{addresses[at_target]} has format {SERVERS.number + 1}, .*; use the"
            ):
                await act
        assert await source.get("key") == b"stays"
        assert not await target.exists("key")
        assert await later.hgetall(LEADER) == {b"format": b"%d" % (SERVERS.number + 1)}
        assert [await one.hgetall(name) for one in (source, target) for name in (STATE, SWEPT)] == before
        await later.hdel(LEADER, "format")
        await moved(pair, NEW, term)
        assert await target.get("key") == b"stays"


async def test_a_leader_that_died_before_it_had_ended_the_others_leaves_that_to_its_successor(pair: Pair) -> None:
    async with client_of(pair.source) as source:
        # It had noted its term, and no more.
        await source.hset(LEADER, "term", LATTER)
        late = await opened(pair, f"{migrator_prefix(OLD)}100")
        await moved(pair, NEW, LATTER)
        with pytest.raises(SourceUnavailable):
            await late.call("PING")
        assert await source.hgetall(LEADER) == {b"term": b"%d" % LATTER, b"ended": b"%d" % LATTER}


async def test_a_leader_ends_no_connection_of_its_own_and_a_topom_by_itself_leaves_no_mark(pair: Pair) -> None:
    async with client_of(pair.source) as source:
        other = await opened(pair, f"{migrator_prefix(NEW)}100")
        await withdraw(pair.target.address, pair.source.address, access=ServerAccess(), instance=NEW, term=3)
        assert await other.call("PING") == b"PONG"
        other.close()
        await source.flushall()
        await moved(pair, NEW, 0)
        assert not await source.exists(LEADER)
