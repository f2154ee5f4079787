"""The command table against a real server: nothing forgotten, and the same keys found in the same arguments."""

import asyncio
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis
from redis.asyncio.connection import Connection
from redis.exceptions import ResponseError

from slots import commands, keys
from slots.commands import Route

WITH_KEYS = (Route.KEYED, Route.MOVABLE, Route.SPLIT, Route.BLOCKING)

SAMPLES = """
eval script 0
eval script 1 a
eval script 2 a {b} c d
evalsha sha 2 a a
eval_ro script 1 a 1
evalsha_ro sha 1 a
fcall f 1 a
fcall_ro f 3 a b c d
zunion 2 a b
ZUNION 2 a b WITHSCORES
zinter 1 a weights 2
zdiff 3 a b c
zintercard 2 a b LIMIT 1
zunionstore d 2 a b AGGREGATE max
zinterstore d 1 a
zdiffstore d 2 a b
sintercard 2 a b limit 3
lmpop 2 a b left
zmpop 1 a MIN count 3
blmpop 0 2 a b right
bzmpop 0 1 a max
xread streams a 0
XREAD COUNT 2 STREAMS a b 0 0
xread block 0 count 1 streams streams b 0-0 $
xreadgroup group g c streams a >
xreadgroup group streams streams count 1 noack streams a b > 0
xreadgroup count 5 block 1 group g c streams a >
sort a
sort a desc limit 0 10 alpha
sort a store d
sort a store c STORE d
sort a by nosort get # store d
sort_ro a asc
georadius a 0 0 1 km
georadius a 0 0 1 km asc count 3 store d
georadius a 0 0 1 m STOREDIST d
georadiusbymember a m 1 km
georadiusbymember a m 1 km store c storedist d
georadius_ro a 0 0 1 km
georadiusbymember_ro a m 1 km
geosearchstore d a fromlonlat 0 0 byradius 1 km
copy a b
copy a b replace
copy a b db 3 replace
move a 3
sort a by {x}weight_* get {x}* get # store d
sort_ro a by {x}weight_*->field
rename a b
lmove a b left right
blmove a b left right 0
brpoplpush a b 0
blpop a b c 0
bzpopmin a 0
bitop and d a b
pfcount a b c
pfmerge d a b
mget a b a
mset a 1 b 2
msetnx a 1 b 2
del a b
unlink a
exists a b
touch a b
sdiffstore d a b
sinter a b
smove a b m
lcs a b len
zrangestore d a 0 1
object encoding a
OBJECT FREQ a
memory usage a samples 5
xgroup create a g $
xgroup createconsumer a g c
xinfo stream a full
xinfo consumers a g
xadd a * f v
set a b ex 10
dump a
restore a 0 payload
"""

MALFORMED = r"""
get
get a b
set a
mset a
mset a 1 b
msetnx a 1 b
eval script x
eval script -1 a
eval script 2 a
eval script 01 a
eval script +1 a
eval script 99999999999999999999 a
evalsha 0000000000000000000000000000000000000000 2 a
zunion 0 a
zunion -1 a
zunion x a
zunion 3 a b
zinter 2 a
zdiff 0 a
zintercard 0 a
zunionstore d 0 a
zinterstore d 2 a
zdiffstore d x a
sintercard 0 a
sintercard x a
sintercard 3 a b
lmpop 0 a left
lmpop x a left
lmpop 2 a left
lmpop 1 a
zmpop 0 a min
zmpop 2 a min
xread foo a 0
xread count 1 streams
xread count 1 block
xread streams a b 0
xread block 0 streams a b 0
xreadgroup group g c streams a b >
xreadgroup group g c streams a b > 0 0
sort a foo
sort a store
sort a limit 0
sort_ro a store d
sort
object
object foo a
object encoding
object encoding a b
xgroup create a
unheard-of
unheard-of a b
unheard-of "one\rtwo\nthree" b
client foo
xread
"""


def lines(text: str) -> list[list[bytes]]:
    """The requests that the lines of ``text`` spell, the way a shell reads them."""
    return [
        [word.replace("\\r", "\r").replace("\\n", "\n").encode() for word in shlex.split(line)]
        for line in text.strip().splitlines()
    ]


def shown(argv: list[bytes]) -> str:
    return b" ".join(argv).decode()


async def plain_reply(redis: Redis, *argv: bytes) -> Any:
    """A reply as the server gives it, without what the client makes of it."""
    connection = await redis.connection_pool.get_connection()
    try:
        await connection.send_command(*argv)
        return await connection.read_response()
    finally:
        await redis.connection_pool.release(connection)


async def reported(address: str) -> dict[str, Any]:
    """The entries of COMMAND by their names, those of subcommands too, as the server gives them."""
    host, _, port = address.rpartition(":")
    connection = Connection(host=host, port=int(port), protocol=2, decode_responses=True)
    try:
        await connection.send_command("COMMAND")
        reply = await connection.read_response()
    finally:
        await connection.disconnect()
    entries = [*reply, *(subcommand for entry in reply if len(entry) > 9 for subcommand in entry[9])]
    return {entry[0].upper(): entry for entry in entries}


@pytest.fixture(scope="session")
def server_commands(redis_address: str) -> dict[str, Any]:
    """What the real server says of its commands."""
    return asyncio.run(reported(redis_address))


@pytest.fixture
async def redis7(redis: Redis) -> Redis:
    """The real server, if it is of version 7: older and newer ones word some errors in other ways."""
    version = (await redis.info("server"))["redis_version"]
    if not version.startswith("7."):
        pytest.skip(f"the Redis server is of version {version}")
    return redis


def test_every_command_of_the_server_has_a_row(server_commands: dict[str, Any], redis7: Redis) -> None:
    assert set(server_commands) - set(commands.table()) == set()


def test_rows_say_what_the_server_says(server_commands: dict[str, Any], redis7: Redis) -> None:
    for name, (_, arity, flags, first, last, step, *_rest) in server_commands.items():
        row = commands.table()[name]
        assert (row.arity, row.first, row.last, row.step) == (arity, first, last, step), name
        assert row.flags == set(flags), name


async def test_server_finds_the_same_keys(redis7: Redis) -> None:
    for argv in lines(SAMPLES):
        found = commands.keys_of(commands.find(argv), argv)
        assert found == await plain_reply(redis7, b"COMMAND", b"GETKEYS", *argv), shown(argv)


async def test_server_gives_the_same_errors(redis7: Redis) -> None:
    for argv in lines(MALFORMED):
        with pytest.raises((commands.CommandError, commands.KeysError)) as caught:
            commands.keys_of(commands.find(argv), argv)
        with pytest.raises(ResponseError) as refused:
            await plain_reply(redis7, *argv)
        # The client takes the code off.
        assert str(caught.value) == f"ERR {refused.value}", shown(argv)


def test_every_command_with_keys_is_routed_by_them() -> None:
    for row in commands.table().values():
        if row.name == "PUBLISH":
            # Its channel counts as a key here, but a server does not take it for a key.
            assert (row.route, row.keys) == (Route.KEYED, "at:1")
        elif row.route in (Route.KEYED, Route.SPLIT):
            assert row.first > 0, row
            assert row.step > 0, row
            assert not row.keys, row
        if row.route in (Route.KEYED, Route.SPLIT):
            # The engine sends these without looking at the client that asks.
            assert "admin" not in row.flags, row
        if row.route == Route.MOVABLE:
            assert row.keys, row
        if row.route in (Route.LOCAL, Route.SPREAD, Route.ANY):
            # These watch keys, or take channels for keys, which is for their handlers to see to.
            assert not row.first or row.name in ("WATCH", "SSUBSCRIBE", "SUNSUBSCRIBE"), row


def test_commands_that_may_wait_are_not_sent_as_others_are() -> None:
    waiting = {row.name for row in commands.table().values() if "blocking" in row.flags}
    routed = {name for name in waiting if commands.table()[name].route != Route.BLOCKING}
    # They wait only when asked to.
    assert routed == {"XREAD", "XREADGROUP"}


def test_refusals_say_why() -> None:
    for row in commands.table().values():
        assert bool(row.reason) == (row.route == Route.REFUSED), row
    shown = "ERR SWAPDB is refused by Slotferry: the databases of all servers cannot be swapped at one moment"
    assert commands.refusal(commands.table()["SWAPDB"]) == shown
    assert commands.refusal(commands.table()["CONFIG|SET"]).startswith("ERR CONFIG SET is refused by Slotferry: ")


async def test_a_reason_that_is_a_whole_error_is_that_of_redis(redis7: Redis) -> None:
    whole = [row for row in commands.table().values() if row.reason.startswith("ERR ")]
    assert {row.name.partition("|")[0] for row in whole} == {"ASKING", "CLUSTER"}
    with pytest.raises(ResponseError) as refused:
        await plain_reply(redis7, b"CLUSTER", b"INFO")
    assert {commands.refusal(row) for row in whole} == {f"ERR {refused.value}"}


def test_containers() -> None:
    assert commands.table()["OBJECT"].container
    assert not commands.table()["OBJECT|ENCODING"].container
    assert not commands.table()["GET"].container
    assert commands.find([b"command"]).name == "COMMAND"
    assert commands.find([b"Command", b"count"]).name == "COMMAND|COUNT"


def test_commands_that_the_proxy_can_do_over_slots() -> None:
    apart = {row.name for row in commands.table().values() if row.apart}
    assert apart == {
        *(row.name for row in commands.table().values() if row.computed or row.stored),
        *("LMPOP", "XREAD", "ZMPOP"),
    }


def test_split_commands() -> None:
    split = {row.name for row in commands.table().values() if row.route == Route.SPLIT}
    assert split == {"MGET", "MSET", "DEL", "UNLINK", "EXISTS", "TOUCH"}


def test_a_rule_that_is_none() -> None:
    for rule in ("", "at", "count:1", "streams:1", "at:1+keys"):
        with pytest.raises(ValueError, match="is not a rule"):
            keys.positions(rule, [b"get", b"a"])


def test_what_a_replica_may_answer() -> None:
    table = commands.table()
    for command in table.values():
        assert not (command.from_replica and command.writes), command
    for name in ("GET", "MGET", "HGETALL", "ZRANGE", "TTL", "OBJECT|ENCODING", "BITFIELD_RO", "XRANGE"):
        assert table[name].from_replica
    # A cursor goes on only where it began.
    for name in ("SET", "GETEX", "GETDEL", "SORT", "BITFIELD", "EVAL", "HSCAN", "SSCAN", "ZSCAN", "PUBLISH"):
        assert not table[name].from_replica


KEEPING = r"""
append s ""
bitfield s set u8 0 0
decr n
decrby n 1
geoadd z 0 0 m
getset s ""
hincrby h f -1
hincrbyfloat h f -1
hmset h f ""
hpersist h fields 1 f
hset h f ""
hsetnx h f ""
incr n
incrby n 0
incrbyfloat n 0
linsert l before m x
lpush l x
lpushx l x
lset l 0 ""
mset s ""
msetnx s 1 {s} 2
persist s
pfadd p
pfmerge p {s}missing
psetex s 60000 ""
rpush l x
rpushx l x
sadd set m
set s ""
setbit s 0 0
setex s 60 ""
setnx s ""
setrange s 0 ""
xack x g 1-1
xadd x maxlen 0 2-1 f v
xautoclaim x g c 0 0
xclaim x g c 0 1-1
xdel x 1-1
xreadgroup group g c streams x >
xsetid x 9-9
xtrim x maxlen 0
zadd z 0 m
zincrby z -1 m
"""
SETUP = r"""
set s ""
set n 1
hset h f 1
rpush l m
sadd set m
zadd z 1 m
pfadd p
xadd x 1-1 f v
xgroup create x g 0
"""


async def test_a_command_that_keeps_its_keys_leaves_them_there(redis: Redis, server_commands: dict[str, Any]) -> None:
    """This also holds for a key with one element, or with none. For other commands, the proxy checks whether the source
    has the key."""
    samples = lines(KEEPING)
    assert [argv[0].decode().upper() for argv in samples] == sorted(
        name for name, row in commands.table().items() if row.keeps and "write" in row.flags
    )
    for argv in samples:
        row = commands.find(argv)
        assert not row.takes_away
        if row.name not in server_commands:
            continue
        await redis.flushall()
        for one in lines(SETUP):
            await plain_reply(redis, *one)
        await plain_reply(redis, *argv)
        key = commands.keys_of(row, argv)[0]
        assert await redis.exists(key), shown(argv)


def test_what_may_take_a_key_away() -> None:
    table = commands.table()
    for name in (
        "DEL",
        "UNLINK",
        "GETDEL",
        "LPOP",
        "HDEL",
        "EXPIRE",
        "GETEX",
        "RENAME",
        "SINTERSTORE",
        "MOVE",
        "RESTORE",
    ):
        assert table[name].takes_away
    for name in ("EVAL", "FCALL", "EXEC", "BLPOP", "BITOP", "COPY", "SORT"):
        assert table[name].takes_away
    for name in ("GET", "MGET", "HSCAN", "EXISTS", "EVAL_RO", "OBJECT|ENCODING", "PUBLISH"):
        assert not table[name].takes_away


WORDS = st.sampled_from(
    [b"a", b"0", b"1", b"2", b"-1", b"STREAMS", b"store", b"GROUP", b"limit", b"count", b"\xff", b""]
)


@given(st.sampled_from(sorted(commands.table())), st.lists(WORDS, max_size=8))
def test_any_arguments(name: str, arguments: list[bytes]) -> None:
    argv = [*name.encode().split(b"|"), *arguments]
    found = found_or_error(argv)
    if isinstance(found, str):
        assert found.startswith("ERR ")
        assert "\n" not in found
        return
    # No key is invented: each stands after the command's name. If there have to be keys, some are found.
    assert all(0 < position < len(argv) for position in found)
    command = commands.find(argv)
    if command.route in WITH_KEYS and "no_mandatory_keys" not in command.flags:
        assert found


def found_or_error(argv: list[bytes]) -> list[int] | str:
    """Places of the keys, or the error reply."""
    try:
        return commands.key_positions(commands.find(argv), argv)
    except (commands.CommandError, commands.KeysError) as error:
        return str(error)


@pytest.mark.parametrize("name", [b"SCRIPT|LOAD", b"object|encoding"])
def test_no_client_says_a_subcommand_as_one_word(name: bytes) -> None:
    with pytest.raises(commands.UnknownCommandError, match="unknown command"):
        commands.find([name, b"x", b"y"])
