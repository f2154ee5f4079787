"""Every command that a server reports: none is forgotten, and all that are not refused work through the proxy."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio.connection import Connection

from slotferry.redis_server import RedisServer, embedded_binary, find_binary, start_redis
from slots import commands
from slots.commands import Route
from slots.slot import Slot
from tests.integration.worker.conversations import Talk
from tests.integration.worker.harness import WorkerHarness

StartWorker = Callable[..., Awaitable[WorkerHarness]]

SEED = """
SET {t}text abc
SET {t}number 10
HSET {t}hash f v g 5
RPUSH {t}list a b c
SADD {t}set a b c
SADD {t}set2 b c
ZADD {t}zset 1 a 2 b
ZADD {t}zset2 3 b
XADD {t}stream 1-1 f v
XGROUP CREATE {t}stream group 0
GEOADD {t}geo 13.36 38.11 here 15.08 37.5 there
PFADD {t}hll a b
PFADD {t}hll2 c
FUNCTION LOAD REPLACE "#!lua name=lib\\nredis.register_function{function_name='f', flags={'no-writes'}, callback=F}"
""".replace("=F}", "=function(keys, arguments) return 1 end}")

# A line for each command that is not refused; ` & ` between several requests, the last of which counts.
SAMPLES = r"""
ACL CAT
ACL DRYRUN default GET x
ACL GENPASS
ACL GETUSER default
ACL HELP
ACL LIST
ACL USERS
ACL WHOAMI
APPEND {t}text x
AUTH default x
BITCOUNT {t}text
BITFIELD {t}text GET u8 0
BITFIELD_RO {t}text GET u8 0
BITOP AND {t}new {t}text {t}text
BITPOS {t}text 1
BLMOVE {t}list {t}new LEFT RIGHT 1
BLMPOP 1 1 {t}list LEFT
BLPOP {t}list 1
BRPOP {t}list 1
BRPOPLPUSH {t}list {t}new 1
BZMPOP 1 1 {t}zset MIN
BZPOPMAX {t}zset 1
BZPOPMIN {t}nothing 0.01
CLIENT CACHING YES
CLIENT GETNAME
CLIENT GETREDIR
CLIENT HELP
CLIENT ID
CLIENT INFO
CLIENT KILL ID 99999
CLIENT LIST
CLIENT NO-EVICT ON
CLIENT NO-TOUCH OFF
CLIENT REPLY ON
CLIENT SETINFO LIB-NAME tests
CLIENT SETNAME me
CLIENT TRACKING OFF
CLIENT TRACKINGINFO
CLIENT UNBLOCK 99999
CLIENT UNPAUSE
COMMAND
COMMAND COUNT
COMMAND DOCS get
COMMAND GETKEYS GET a
COMMAND GETKEYSANDFLAGS GET a
COMMAND HELP
COMMAND INFO get
COMMAND LIST
CONFIG GET maxmemory
CONFIG HELP
COPY {t}text {t}new
DBSIZE
DECR {t}number
DECRBY {t}number 2
DEL {t}text other
MULTI & DISCARD
DUMP {t}text
ECHO hello
EVAL "return KEYS[1]" 1 {t}text
SCRIPT LOAD "return 1" & EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0
SCRIPT LOAD "return 1" & EVALSHA_RO e0e1f9fabfc9d4800c877a703b823ac0578ff8db 1 {t}text
EVAL_RO "return 1" 1 {t}text
MULTI & GET {t}text & EXEC
EXISTS {t}text other
EXPIRE {t}text 100
EXPIREAT {t}text 9999999999
EXPIRETIME {t}text
FCALL f 1 {t}text
FCALL_RO f 0
FLUSHALL
FLUSHDB
FUNCTION DELETE lib
FUNCTION DUMP
FUNCTION FLUSH
FUNCTION HELP
FUNCTION KILL
FUNCTION LIST
FUNCTION LOAD "#!lua name=other\nredis.register_function('g', function() return 1 end)"
FUNCTION RESTORE \xf5\xc3@X@]\x1f#!lua
FUNCTION STATS
GEOADD {t}geo 13 38 new
GEODIST {t}geo here there
GEOHASH {t}geo here
GEOPOS {t}geo here
GEORADIUS {t}geo 15 37 200 km
GEORADIUSBYMEMBER {t}geo here 200 km STORE {t}new
GEORADIUSBYMEMBER_RO {t}geo here 200 km
GEORADIUS_RO {t}geo 15 37 200 km
GEOSEARCH {t}geo FROMMEMBER here BYRADIUS 200 km
GEOSEARCHSTORE {t}new {t}geo FROMMEMBER here BYRADIUS 200 km
GET {t}text
GETBIT {t}text 1
GETDEL {t}text
GETEX {t}text EX 10
GETRANGE {t}text 0 1
GETSET {t}text x
HDEL {t}hash f
HELLO 2
HEXISTS {t}hash f
HEXPIRE {t}hash 10 FIELDS 1 f
HEXPIREAT {t}hash 9999999999 FIELDS 1 f
HEXPIRETIME {t}hash FIELDS 1 f
HGET {t}hash f
HGETALL {t}hash
HINCRBY {t}hash g 1
HINCRBYFLOAT {t}hash g 1.5
HKEYS {t}hash
HLEN {t}hash
HMGET {t}hash f g
HMSET {t}hash h 1
HPERSIST {t}hash FIELDS 1 f
HPEXPIRE {t}hash 10000 FIELDS 1 f
HPEXPIREAT {t}hash 9999999999000 FIELDS 1 f
HPEXPIRETIME {t}hash FIELDS 1 f
HPTTL {t}hash FIELDS 1 f
HRANDFIELD {t}hash
HSCAN {t}hash 0
HSET {t}hash h 1
HSETNX {t}hash h 1
HSTRLEN {t}hash f
HTTL {t}hash FIELDS 1 f
HVALS {t}hash
INCR {t}number
INCRBY {t}number 2
INCRBYFLOAT {t}number 0.5
INFO
KEYS *
LASTSAVE
LATENCY DOCTOR
LATENCY GRAPH command
LATENCY HELP
LATENCY HISTOGRAM get
LATENCY HISTORY command
LATENCY LATEST
LATENCY RESET
LCS {t}text {t}number
LINDEX {t}list 0
LINSERT {t}list BEFORE b x
LLEN {t}list
LMOVE {t}list {t}new LEFT RIGHT
LMPOP 1 {t}list LEFT
LOLWUT
LPOP {t}list
LPOS {t}list b
LPUSH {t}list x
LPUSHX {t}list x
LRANGE {t}list 0 -1
LREM {t}list 1 a
LSET {t}list 0 x
LTRIM {t}list 0 1
MEMORY HELP
MEMORY USAGE {t}text
MGET {t}text other
MODULE HELP
MODULE LIST
MOVE {t}text 1
MSET {t}text 1 other 2
MSETNX {t}new 1 {t}new2 2
MULTI
OBJECT ENCODING {t}text
OBJECT FREQ {t}text
OBJECT HELP
OBJECT IDLETIME {t}text
OBJECT REFCOUNT {t}text
PERSIST {t}text
PEXPIRE {t}text 10000
PEXPIREAT {t}text 9999999999000
PEXPIRETIME {t}text
PFADD {t}hll c
PFCOUNT {t}hll {t}hll2
PFDEBUG GETREG {t}hll
PFMERGE {t}new {t}hll {t}hll2
PING
PSETEX {t}text 10000 x
PSUBSCRIBE news*
PTTL {t}text
PUBLISH news x
PUBSUB CHANNELS
PUBSUB HELP
PUBSUB NUMPAT
PUBSUB NUMSUB news
PUBSUB SHARDCHANNELS
PUBSUB SHARDNUMSUB news
PUNSUBSCRIBE
QUIT
RANDOMKEY
READONLY
READWRITE
RENAME {t}text {t}new
RENAMENX {t}text {t}new
RESET
RESTORE {t}new 0 x
ROLE
RPOP {t}list
RPOPLPUSH {t}list {t}new
RPUSH {t}list x
RPUSHX {t}list x
SADD {t}set x
SCAN 0
SCARD {t}set
SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db
SCRIPT FLUSH
SCRIPT HELP
SCRIPT KILL
SCRIPT LOAD "return 1"
SDIFF {t}set {t}set2
SDIFFSTORE {t}new {t}set {t}set2
SELECT 1
SET {t}text x
SETBIT {t}text 1 1
SETEX {t}text 10 x
SETNX {t}new x
SETRANGE {t}text 0 x
SINTER {t}set {t}set2
SINTERCARD 2 {t}set {t}set2
SINTERSTORE {t}new {t}set {t}set2
SISMEMBER {t}set a
SLOWLOG GET
SLOWLOG HELP
SLOWLOG LEN
SLOWLOG RESET
SMEMBERS {t}set
SMISMEMBER {t}set a x
SMOVE {t}set {t}set2 a
SORT {t}list ALPHA STORE {t}new
SORT_RO {t}list ALPHA
SPOP {t}set
SPUBLISH news x
SRANDMEMBER {t}set
SREM {t}set a
SSCAN {t}set 0
SSUBSCRIBE news
STRLEN {t}text
SUBSCRIBE news
SUBSTR {t}text 0 1
SUNION {t}set {t}set2
SUNIONSTORE {t}new {t}set {t}set2
SUNSUBSCRIBE
TIME
TOUCH {t}text other
TTL {t}text
TYPE {t}text
UNLINK {t}text other
UNSUBSCRIBE
WATCH {t}text & UNWATCH
WAIT 0 10
WAITAOF 0 0 10
WATCH {t}text
XACK {t}stream group 1-1
XADD {t}stream * f v
XAUTOCLAIM {t}stream group consumer 0 0
XCLAIM {t}stream group consumer 0 1-1
XDEL {t}stream 1-1
XGROUP CREATE {t}stream other 0
XGROUP CREATECONSUMER {t}stream group other
XGROUP DELCONSUMER {t}stream group consumer
XGROUP DESTROY {t}stream group
XGROUP HELP
XGROUP SETID {t}stream group 0
XINFO CONSUMERS {t}stream group
XINFO GROUPS {t}stream
XINFO HELP
XINFO STREAM {t}stream
XLEN {t}stream
XPENDING {t}stream group
XRANGE {t}stream - +
XREAD COUNT 1 BLOCK 10 STREAMS {t}stream 0
XREADGROUP GROUP group consumer STREAMS {t}stream >
XREVRANGE {t}stream + -
XSETID {t}stream 5-5
XTRIM {t}stream MAXLEN 1
ZADD {t}zset 5 x
ZCARD {t}zset
ZCOUNT {t}zset 0 1
ZDIFF 2 {t}zset {t}zset2
ZDIFFSTORE {t}new 2 {t}zset {t}zset2
ZINCRBY {t}zset 1 a
ZINTER 2 {t}zset {t}zset2
ZINTERCARD 2 {t}zset {t}zset2
ZINTERSTORE {t}new 2 {t}zset {t}zset2
ZLEXCOUNT {t}zset - +
ZMPOP 1 {t}zset MIN
ZMSCORE {t}zset a x
ZPOPMAX {t}zset
ZPOPMIN {t}zset
ZRANDMEMBER {t}zset
ZRANGE {t}zset 0 -1
ZRANGEBYLEX {t}zset - +
ZRANGEBYSCORE {t}zset 0 1
ZRANGESTORE {t}new {t}zset 0 -1
ZRANK {t}zset a
ZREM {t}zset a
ZREMRANGEBYLEX {t}zset - +
ZREMRANGEBYRANK {t}zset 0 1
ZREMRANGEBYSCORE {t}zset 0 1
ZREVRANGE {t}zset 0 -1
ZREVRANGEBYLEX {t}zset + -
ZREVRANGEBYSCORE {t}zset 1 0
ZREVRANK {t}zset a
ZSCAN {t}zset 0
ZSCORE {t}zset a
ZUNION 2 {t}zset {t}zset2
ZUNIONSTORE {t}new 2 {t}zset {t}zset2
"""

UNLIKE_REDIS = {
    "READONLY": "a single Redis refuses it",
    "READWRITE": "a single Redis refuses it",
}
"""Commands for which either the proxy or a single Redis gives an error, but not both; and why."""


def words(line: str) -> list[str]:
    """The words of a request; those in double quotes are one."""
    found = []
    for index, part in enumerate(line.split('"')):
        found += [part.replace("\\n", "\n")] if index % 2 else part.split()
    return found


def name_of(argv: list[str]) -> str:
    """The name of a request's command in the table."""
    return commands.find([word.encode() for word in argv]).name


def samples() -> dict[str, list[list[str]]]:
    """The requests of each sample by the name of its last one's command."""
    found = {}
    for line in SAMPLES.strip().splitlines():
        requests = [words(part) for part in line.split(" & ")]
        name = name_of(requests[-1])
        assert name not in found, f"{name} has two samples"
        found[name] = requests
    return found


async def reported(address: str) -> set[str]:
    """The names of all commands that a server reports, subcommands too."""
    host, _, port = address.rpartition(":")
    connection = Connection(host=host, port=int(port), protocol=2, decode_responses=True)
    try:
        await connection.send_command("COMMAND")
        entries: list[Any] = await connection.read_response()
    finally:
        await connection.disconnect()
    return {entry[0].upper() for one in entries for entry in (one, *(one[9] if len(one) > 9 else ()))}


def binaries() -> list[Path]:
    """The servers that are on this machine, of different versions perhaps."""
    found = [find_binary(), embedded_binary()]
    return list(dict.fromkeys(path for path in found if path is not None))


@pytest.mark.parametrize("binary", binaries(), ids=str)
async def test_no_command_of_a_server_is_forgotten(tmp_path: Path, binary: Path) -> None:
    server = await start_redis("redis", tmp_path, binary=binary)
    try:
        names = await reported(server.address)
    finally:
        await server.stop()
    assert len(names) > 200
    # Of older versions: STRALGO is learned from the server, the others are what HTTP begins with.
    assert names - commands.table().keys() - {"STRALGO", "HOST:", "POST"} == set()


def test_there_is_a_sample_of_every_command_that_is_not_refused() -> None:
    wanted = {
        row.name
        for row in commands.table().values()
        # Without a subcommand these are errors.
        if row.route is not Route.REFUSED and not (row.container and row.arity != -1)
    }
    assert samples().keys() == wanted


@pytest.fixture
async def worker(start_worker: StartWorker) -> WorkerHarness:
    """Two groups with half of the slots each."""
    worker = await start_worker()
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    return worker


async def answer(address: str, requests: list[list[str]], protocol: int) -> bytes:
    """The reply to the last of the requests, on a new connection to a server with the same few keys each time."""
    async with Talk(address) as talk:
        await talk.ask("FLUSHALL")
        for line in SEED.strip().splitlines():
            assert not (await talk.ask(*words(line))).startswith(b"-"), line
    async with Talk(address, protocol) as talk:
        for request in requests:
            reply = await talk.ask(*request)
        assert reply, "the connection was closed"
        # It goes on, and nothing is left over. (What a subscriber gets for a PING is an array.)
        followed = b"" if requests[-1][0] == "QUIT" else await talk.ask("PING", "after")
        assert b"after" in followed or requests[-1][0] in ("QUIT", "MULTI")
    return reply


@pytest.mark.parametrize("protocol", [2, 3])
async def test_every_command_that_is_not_refused_works(
    worker: WorkerHarness, plain: RedisServer, protocol: int
) -> None:
    known = await reported(plain.address)
    wrong = []
    async with asyncio.timeout(110):
        for name, requests in samples().items():
            if name not in known:
                continue
            ours = await answer(worker.settings.listen, requests, protocol)
            theirs = await answer(plain.address, requests, protocol)
            alike = ours[:1] == theirs[:1] if not ours.startswith(b"-") else ours == theirs
            if b"refused by Slotferry" in ours or not (alike or name in UNLIKE_REDIS):
                wrong.append((name, ours[:200], theirs[:200]))
    assert not wrong


async def test_every_command_that_is_refused_says_why(worker: WorkerHarness) -> None:
    async with Talk(worker.settings.listen) as talk:
        for row in commands.table().values():
            if row.route is not Route.REFUSED:
                continue
            name, _, subcommand = row.name.partition("|")
            needed = abs(row.arity) - (2 if subcommand else 1)
            reply = await talk.ask(name, *([subcommand] if subcommand else []), *["1"] * needed)
            shown = commands.refusal(row).encode()
            # A container is looked at with its subcommands only.
            assert reply == b"-%b\r\n" % shown or (row.container and b"unknown subcommand" in reply), row.name
        assert await talk.ask("PING") == b"+PONG\r\n"
