"""The words that commands are made of: few, so that commands meet each other's keys and members again and again."""

import hashlib

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

TAGS = (b"{a}", b"{b}", b"{c}", b"{d}")
"""Slots; the keys of one command share one. With 1024 slots they are of different groups."""
ANY_TAGS = (*TAGS, b"")
"""Of keys in a product where all is one slot."""
KINDS = ("string", "bitmap", "hash", "list", "set", "zset", "stream", "hll", "geo")
KEYS_PER_KIND = 2
CHANNELS = (b"news", b"news.sport", b"{a}news", b"other")

Words = SearchStrategy[bytes]


def usually(common: Words, rare: Words, in_all: int = 12) -> Words:
    """One of the rare words once in a while."""
    return st.integers(1, in_all).flatmap(lambda number: rare if number == in_all else common)


def numbers(*values: int | float) -> Words:
    """One of these numbers."""
    return st.sampled_from([b"%d" % value if isinstance(value, int) else repr(value).encode() for value in values])


def of(*words: bytes) -> Words:
    """One of these words."""
    return st.sampled_from(words)


NO_INTEGERS = of(b"", b"x", b"1.5", b" 1", b"01", b"+1", b"9223372036854775808", b"-9223372036854775809")
NO_FLOATS = of(b"", b"x", b"nan", b" 1", b"1 ", b"0x", b"--1")
INTEGERS = usually(
    numbers(0, 1, 2, 3, 5, 10, -1, -2),
    numbers(100, 255, -100, 2**31, 2**32, 2**63 - 1, -(2**63)),
    6,
)
MEMBERS = usually(
    of(b"a", b"b", b"c", b"1", b"2", b"3"),
    of(b"", b"\x00\xff\r\n", b"x" * 70, b"9223372036854775807", b"a b", b"\xc3\xa4"),
)
VALUES = usually(
    of(b"", b"a", b"hello", b"10", b"-5", b"3.5", b"\x00\r\n\xff$1\r\n"),
    of(b"x" * 100, b"9223372036854775807", b"y" * 5000, b"*3\r\n", b"1e10", b"z" * 70_000),
)
FLOATS = usually(of(b"0", b"1", b"-1", b"2.5", b"1e3", b"3.25"), of(b"inf", b"-inf", b"1e308", b"0.1", b"1e-5"))

LUA = {
    "lua-get": (b"return redis.call('GET', KEYS[1])",),
    "lua-arguments": (b"return {KEYS[1], ARGV[1], #ARGV, #KEYS}",),
    "lua-values": (
        b"return 1",
        b"return {1, 2.9, 'x', false, {true, {}}, {err='E'}, {ok='fine'}}",
        b"redis.setresp(3) return {double=3.5}",
        b"return redis.sha1hex('')",
        b"return redis.error_reply('MINE of mine')",
        b"return {}",
        b"redis.setresp(3) return {map={a=1}}",
    ),
    "lua-both": (b"return {redis.call('GET', KEYS[1]), redis.call('APPEND', KEYS[2], ARGV[1])}",),
    "lua-set": (
        b"return redis.call('SET', KEYS[1], ARGV[1])",
        b"redis.call('APPEND', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])",
    ),
    "lua-incr": (b"return redis.call('INCR', KEYS[1])", b"return redis.pcall('INCR', KEYS[1])"),
    "lua-broken": (
        b"error('no')",
        b"return redis.call('NOSUCH')",
        b"return +",
        b"return x.y",
        b"",
        b"#!lua bad=1\nreturn",
    ),
}
LIBRARY = (
    b"#!lua name=mylib\n"
    b"redis.register_function{function_name='myget', callback=function(keys, args) "
    b"return redis.call('GET', keys[1]) end, flags={'no-writes'}}\n"
    b"redis.register_function('myset', function(keys, args) return redis.call('SET', keys[1], 'f') end)"
)
SHAS = [hashlib.sha1(script).hexdigest().encode() for name in ("lua-get", "lua-values") for script in LUA[name]]

WORDS: dict[str, Words] = {
    **{name: of(*scripts) for name, scripts in LUA.items()},
    "library": usually(of(LIBRARY), of(b"#!lua name=other\nreturn 1", b"return 1", b"#!lua name=mylib\n+", b"")),
    "sha": usually(of(*SHAS, SHAS[0].upper()), of(b"x", b"", b"0" * 40)),
    "value": VALUES,
    "member": MEMBERS,
    "field": MEMBERS,
    "int": usually(INTEGERS, NO_INTEGERS),
    "index": usually(numbers(0, 1, 2, 3, 5, -1, -2, -100, 100), NO_INTEGERS),
    "count": usually(numbers(1, 2, 3, 10, 0, -1), usually(numbers(100, -10), NO_INTEGERS, 2)),
    "positive": usually(numbers(1, 2, 3, 10), usually(numbers(0, -1, 100), NO_INTEGERS, 2)),
    "all": numbers(1000, 5000),
    "float": usually(FLOATS, NO_FLOATS),
    "bit": usually(of(b"0", b"1"), of(b"2", b"", b"x", b"-1")),
    "offset": usually(numbers(0, 1, 7, 8, 100), usually(numbers(-1, 2**32, 100_000), NO_INTEGERS, 2)),
    "bits": usually(of(b"u8", b"i8", b"u1", b"i16", b"u63", b"i64"), of(b"u64", b"i65", b"u0", b"8", b"x")),
    "place": usually(of(b"0", b"1", b"#1", b"8", b"#2"), of(b"-1", b"#", b"x", b"#-1")),
    # Never anything that passes while it is compared: long ago, or long from now.
    "ttl": usually(numbers(10_000, 20_000), usually(numbers(0, -1, -100, 2**63 - 1), NO_INTEGERS, 2)),
    "ttl-ms": usually(numbers(10_000_000, 20_000_000), usually(numbers(0, -1, 2**63 - 1), NO_INTEGERS, 2)),
    "future": usually(numbers(9_999_999_999, 8_888_888_888), usually(numbers(1, 0, -1, 2**62), NO_INTEGERS, 2)),
    "future-ms": usually(numbers(9_999_999_999_999, 8_888_888_888_888), usually(numbers(1, 0, -1), NO_INTEGERS, 2)),
    "cursor": usually(of(b"0"), of(b"x", b"-1", b"", b"18446744073709551616")),
    "pattern": usually(of(b"*", b"a*", b"[ab]", b"?", b"{a}*"), of(b"", b"[", b"\\*", b"[^a]*", b"x" * 60)),
    "range": usually(of(b"-inf", b"+inf", b"0", b"1", b"(1", b"(2.5", b"10"), of(b"", b"(", b"x", b"nan", b"(inf")),
    "lex": usually(of(b"-", b"+", b"[a", b"(a", b"[b", b"(c"), of(b"", b"a", b"[", b"(")),
    "entry": usually(of(b"1-1", b"2-0", b"2-1", b"3-3", b"5-*", b"7"), of(b"0-0", b"x", b"1-", b"-1", b"1-1-1", b"")),
    "id": usually(of(b"0", b"0-0", b"1-1", b"2-1", b"5", b"7-0"), of(b"x", b"", b"1-x", b"(1-1")),
    "id-range": usually(of(b"-", b"+", b"1-1", b"2", b"(1-1", b"(2-1", b"5"), of(b"", b"x", b"(", b"(-")),
    "group": of(b"g1", b"g2"),
    "consumer": of(b"c1", b"c2"),
    "longitude": usually(of(b"13.361389", b"15.087269", b"2.3522", b"-122.4"), of(b"181", b"x", b"-180.1", b"nan")),
    "latitude": usually(of(b"38.115556", b"37.502669", b"48.8566"), of(b"86", b"x", b"-85.06")),
    "distance": usually(of(b"200", b"2000", b"0", b"12.5"), of(b"-1", b"x", b"")),
    "unit": usually(of(b"m", b"km", b"mi", b"ft"), of(b"x", b"")),
    "place-name": of(b"Palermo", b"Catania", b"Paris"),
    "channel": of(*CHANNELS),
    "channels": of(b"news*", b"*", b"o?her", b"news.*"),
    "message": of(b"", b"hello", b"\x00\r\n", b"m" * 3000),
    "database": usually(of(b"0", b"0", b"3", b"15"), of(b"16", b"-1", b"x", b"", b"01", b"99999999999")),
    "nothing": of(b"x", b"", b"NX", b"LIMIT", b"*", b"0", b"-1", b"WITHSCORES"),
    "no-command": of(b"NOSUCH", b"GE", b"GETX", b"", b"\x00", b"se t", b"X" * 200, b"\xff\xfe", b"a\r\nb"),
    # Of a blocking command that is waited for.
    "short": usually(of(b"0.01", b"0.02", b"0.05"), of(b"-1", b"x", b"", b"nan", b"1e400", b"inf")),
    "short-ms": usually(of(b"10", b"20", b"50"), of(b"-1", b"x", b"", b"1.5")),
    # Of one that waits until it gets something.
    "forever": of(b"0", b"1000"),
}


@st.composite
def many(draw: st.DrawFn, prefix: bytes) -> list[bytes]:
    """So many words that a collection of them is no small one to Redis."""
    start, size = draw(st.integers(0, 3)), draw(st.sampled_from((20, 140, 600)))
    return [b"%b%d" % (prefix, number) for number in range(start, start + size)]
