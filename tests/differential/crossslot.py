"""Commands whose keys are of several slots: Redis Cluster refuses them, and so does a proxy.

In a product where a slot rule makes all keys one slot, they do what they do at one Redis.
"""

import re

from tests.differential.examples import Example, Send, Step
from tests.differential.wire import words

_SAID = re.compile(
    rb"-CROSSSLOT Keys in request don't hash to the same slot: '\{([ab])\}[xy]' has slot \d+, '\{([ab])\}[xy]' \d+; "
    rb"a hash tag in common \(\{tag\} in their names\) would give them one slot\r\n"
)


def names_both(reply: bytes) -> bool:
    """Whether a reply is an error that names a key of each of the two slots."""
    said = _SAID.fullmatch(reply)
    return said is not None and said[1] != said[2]


FILLED = {
    "nothing": (),
    "string": ("MSET {a}x foobar {a}y foo {b}x foobaz",),
    "list": ("RPUSH {a}x m n", "RPUSH {b}x n m"),
    "hash": ("HSET {a}x m 1", "HSET {b}x n 2"),
    "set": ("SADD {a}x m n", "SADD {a}y m", "SADD {b}x n o"),
    "zset": ("GEOADD {a}x 1 1 m 1.001 1 n", "ZADD {a}y 1 m", "ZADD {b}x 1 n 2 o"),
    "stream": (
        *("XGROUP CREATE {a}x g 0 MKSTREAM", "XGROUP CREATE {b}x g 0 MKSTREAM"),
        *("XADD {a}x 1-1 f v", "XADD {b}x 2-2 f v"),
    ),
    "hll": ("PFADD {a}x m n", "PFADD {b}x o"),
}
"""What may be there before: commands that write keys of one type."""
BROUGHT = ("RPUSH {b}x v", "DEL {b}x", "ZADD {b}x 1 v", "DEL {b}x", "XADD {b}x 5-5 f v")
"""What ends the wait of those that wait where nothing is."""


def in_one_slot(line: str) -> Example:
    """The command on keys of each type, also in a transaction; a client for each type, and another one."""
    brings = len(FILLED)

    def named(text: str, kind: str) -> tuple[bytes, ...]:
        return words(re.sub(r"(\{[ab]\}[xy])", rf"\1-{kind}", text))

    # While slots move, a script is run only if its text has been seen.
    steps: list[Step] = [Send(brings, ((b"SCRIPT", b"LOAD", b"return 1"),))]
    for client, (kind, before) in enumerate(FILLED.items()):
        steps += [Send(brings, (named(text, kind),)) for text in before]
        steps.append(Send(client, (named(line, kind),)))
        if "WATCH" not in line:
            steps.append(Send(brings, (words("MULTI"), named(line, kind), words("EXEC"))))
    steps += [Send(brings, (named(text, "nothing"),)) for text in BROUGHT]
    return Example((0, 3) * (brings // 2) + (3,), tuple(steps))


COMMANDS = """
RENAME {a}x {b}x
RENAMENX {a}x {b}x
COPY {a}x {b}x
MSETNX {a}x 1 {b}x 1
LCS {a}x {b}x
BITOP AND {a}x {b}x
BITOP NOT {a}x {b}x
SMOVE {a}x {b}x m
LMOVE {a}x {b}x LEFT LEFT
RPOPLPUSH {a}x {b}x
BLMOVE {a}x {b}x LEFT LEFT 0
BRPOPLPUSH {a}x {b}x 0
ZRANGESTORE {b}x {a}x 0 -1
PFCOUNT {a}x {b}x
PFMERGE {a}x {b}x
GEOSEARCHSTORE {b}x {a}x FROMMEMBER m BYRADIUS 1 km
GEORADIUS {a}x 1 1 1 km STORE {b}x
GEORADIUSBYMEMBER {a}x m 1 km STOREDIST {b}x
SORT {a}x STORE {b}x
XREADGROUP GROUP g c STREAMS {a}x {b}x > >
EVAL return 2 {a}x {b}x
EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 2 {a}x {b}x
EVAL_RO return 2 {a}x {b}x
FCALL f 2 {a}x {b}x
FCALL_RO f 2 {a}x {b}x
WATCH {a}x {b}x
"""
OVER_SLOTS = """
SINTER {a}x {b}x
SUNION {a}x {a}y {b}x
SDIFF {a}x {b}x
SINTERCARD 2 {a}x {b}x
ZUNION 2 {a}x {b}x
ZINTER 2 {a}x {b}x
ZDIFF 2 {a}x {b}x
ZINTERCARD 2 {a}x {b}x
SINTERSTORE {b}x {a}x {a}x
SUNIONSTORE {b}x {a}x
SDIFFSTORE {b}x {a}x
ZUNIONSTORE {b}x 1 {a}x
ZINTERSTORE {b}x 1 {a}x
ZDIFFSTORE {b}x 1 {a}x
LMPOP 2 {a}x {b}x LEFT
ZMPOP 2 {a}x {b}x MIN
XREAD STREAMS {a}x {b}x 0 0
XREAD BLOCK 0 STREAMS {a}x {b}x 0 0
BLPOP {a}x {b}x 0
BRPOP {a}x {b}x 0
BLMPOP 0 2 {a}x {b}x LEFT
BZPOPMIN {a}x {b}x 0
BZPOPMAX {a}x {b}x 0
BZMPOP 0 2 {a}x {b}x MIN
"""
"""Those that work over slots: only in a transaction they are refused."""
