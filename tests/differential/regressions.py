"""Examples that once showed a difference, as small as they could be made, each with what it was."""

from tests.differential.examples import Bare, Example, Send, Walk
from tests.differential.wire import words


def alone(*commands: str | tuple[bytes, ...], protocol: int = 0) -> Example:
    """One client that sends these commands in one go."""
    sent = tuple(words(command) if isinstance(command, str) else command for command in commands)
    return Example((protocol,), (Send(0, sent),))


EXAMPLES: dict[str, Example] = {
    "an unknown command that is no UTF-8": alone((b"\xff\xfe", b"{a}string1", b"")),
    "an unknown command with a NUL, which ends it for Redis": alone((b"\0x", b"a\0b")),
    # Its server closed the connection that all clients share.
    "a length with a leading zero": Example(
        (0, 0), (Bare(0, b"*2\r\n$3\r\nGET\r\n$01\r\nx\r\n"), Send(1, (words("GET x"),)))
    ),
    "a count with a leading zero": Example((0,), (Bare(0, b"*01\r\n$4\r\nPING\r\n"),)),
    "a negative zero": Example((0,), (Bare(0, b"*-0\r\nPING\r\n"),)),
    "a vertical tab within a word": Example((0,), (Bare(0, b"GET a\vb\r\n"),)),
    "a script's name that cannot be one, and no number of keys": alone("EVALSHA x d3c2 0"),
    "numbers that are none, and then more that is wrong": alone("SORT {a}x LIMIT LIMIT -2 -1 ALPHA STORE {a}y"),
    "a script that was loaded, asked for twice": alone(
        (b"SCRIPT", b"LOAD", b"return 1"), (b"SCRIPT", b"EXISTS", *(b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db",) * 2)
    ),
    "a function that is not there, with more keys than arguments": alone("MULTI", "FCALL nosuch 2 {a}x", "EXEC"),
    **{
        f"{command} for a moment, in RESP{protocol}": Example(
            (protocol,), (Send(0, (words(command),), waits=True),) * 12
        )
        for command in (
            "BRPOPLPUSH {a}list1 {a}list2 0.02",
            "BLMOVE {a}list1 {a}list2 LEFT RIGHT 0.02",
            "BLPOP {a}list1 {a}list2 0.02",
            "BZMPOP 0.02 1 {a}zset1 MIN",
            "XREAD BLOCK 20 STREAMS {a}stream1 0",
        )
        for protocol in (2, 3)
    },
    # What is alone in its step cannot be served by another's, and so shows who was first.
    "somebody waits and is brought something": Example(
        (2, 3),
        (
            Send(0, (words("BLPOP {a}list1 {a}list2 0"),)),
            Send(1, (words("RPUSH {a}list2 a b"),)),
            Send(0, (words("LRANGE {a}list2 0 -1"),)),
        ),
    ),
    "somebody leaves while waiting": Example((0,), (Send(0, (words("BLPOP {a}list1 0"),)),)),
    "UNSUBSCRIBE from all that is left": Example(
        (2,), (Send(0, (words("SUBSCRIBE a b c"),)), Send(0, (words("UNSUBSCRIBE"),)), Send(0, (words("GET x"),)))
    ),
    # A worker counts as one where PUBLISH does not count clients, and two of these four share a worker.
    "clients of a channel, of patterns, and of both": Example(
        (2, 3, 2, 3, 3),
        (
            *(Send(client, (words("SUBSCRIBE a b"), words("PSUBSCRIBE a* [ab]"))) for client in range(4)),
            *(Send(4, (words(f"PUBLISH {channel} m"),)) for channel in ("a", "b", "aa", "c")),
            *(Send(client, (words("SSUBSCRIBE a"), words("UNSUBSCRIBE a"))) for client in range(3)),
            *(Send(4, (words(line),)) for line in ("SPUBLISH a m", "PUBLISH a m", "PUBLISH b m")),
            *(Send(client, (words("PUNSUBSCRIBE"),)) for client in range(2)),
            *(Send(4, (words(line),)) for line in ("SPUBLISH b m", "PUBLISH a m", "PUBLISH aa m")),
        ),
    ),
    "a transaction that another client breaks": Example(
        (0, 3),
        (
            Send(0, (words("WATCH {a}x"), words("MULTI"), words("SET {a}y 1"))),
            Send(1, (words("SET {a}x 2"),)),
            Send(0, (words("EXEC"), words("GET {a}y"))),
        ),
    ),
    "a key taken to another database, and looked at there": alone(
        *("SET {a}x 1", "MOVE {a}x 3", "EXISTS {a}x", "SELECT 3", "GET {a}x", "COPY {a}x {a}y DB 0", "SELECT 0"),
        *("GET {a}y", "MOVE {a}y 3", "MOVE {a}y 3", "MOVE {a}y 16", "COPY {a}y {a}x DB x"),
    ),
    "SELECT within MULTI": alone(
        *("SET {a}x 0", "MULTI", "SELECT 3", "GET {a}x", "SET {a}x 3", "EXEC", "GET {a}x", "MULTI", "SELECT 0"),
        *("DISCARD", "GET {a}x", "WATCH {a}x", "MULTI", "MOVE {a}x 0", "SELECT 0", "MOVE {a}x 3", "EXEC", "GET {a}x"),
    ),
    "elements sorted by keys": alone(
        *("RPUSH {a}l 1 2 3", "MSET {a}w1 3 {a}w2 2 {a}w3 1", "SORT {a}l BY {a}w* GET # GET {a}w*"),
        *("SORT {a}l BY {a}w* STORE {a}m", "LRANGE {a}m 0 -1", "SORT_RO {a}l GET {a}none*"),
        protocol=3,
    ),
    "all keys, by steps of one": Example(
        (3,),
        (Send(0, tuple(words(f"SET {{{tag}}}{tag} 1") for tag in "abcdefgh")), Walk(0, b"SCAN", b"", (b"COUNT", b"1"))),
    ),
}
