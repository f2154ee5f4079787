"""What a worker remembers of the keys that its sessions have read."""

from proxy.engine.prefix import Prefix
from proxy.engine.rights import CommandRights
from proxy.engine.tracking import TrackedKeys, Tracker
from tests.unit.proxy.engine.inprocess import Server, engine, nothing_stored

LIMIT = 1_000_000
SESSIONS = 1000


async def test_of_a_key_that_never_changes_sessions_that_have_ended_are_forgotten() -> None:
    async with Server(nothing_stored) as server:
        with engine(server.address) as made:
            session = made.connect().session
            keys = TrackedKeys(LIMIT)
            others = [Tracker(keys, session) for _ in range(10)]
            for tracker in others:
                tracker.read([b"hot"])
            before = keys.size
            for _ in range(SESSIONS):
                tracker = Tracker(keys, session)
                tracker.read([b"hot"])
                tracker.end()
            assert keys.size < 3 * before
            for tracker in others:
                tracker.end()
            assert (len(keys), keys.size) == (0, 0)


async def test_what_is_counted_for_readers_is_taken_back_with_their_keys() -> None:
    async with Server(nothing_stored) as server:
        with engine(server.address) as made:
            session = made.connect().session
            keys = TrackedKeys(LIMIT)
            stays = Tracker(keys, session)
            for _ in range(SESSIONS):
                tracker = Tracker(keys, session)
                tracker.read([b"hot", b"one"])
                tracker.end()
            stays.read([b"hot"])
            assert len(keys) == 2
            keys.received(b">2\r\n$10\r\ninvalidate\r\n*2\r\n$3\r\nhot\r\n$3\r\none\r\n")
            assert (len(keys), keys.size) == (0, 0)


async def test_a_session_with_a_prefix_is_told_no_name_without_it() -> None:
    told: list[bytes] = []
    async with Server(nothing_stored) as server:
        with engine(server.address) as made:
            session = made.connect().session
            session.limit(CommandRights(b"", []), Prefix(b"shop:", b"", list))
            keys = TrackedKeys(LIMIT)
            keys.on_redirected = lambda tracker, session, data, after: told.append(data)
            tracker = Tracker(keys, session, target=1)
            tracker.read([b"shop:k", b"shop", b"other:k"])
            keys.received(b">2\r\n$10\r\ninvalidate\r\n*3\r\n$7\r\nother:k\r\n$6\r\nshop:k\r\n$4\r\nshop\r\n")
            tracker.end()
    assert told[1] == b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n"
    assert told[0] == told[2] == b">2\r\n$10\r\ninvalidate\r\n*0\r\n"
