"""Inputs for the fuzzer where no coverage guides it: valid streams made by chance, then changed a little.

The same seed gives the same inputs.
"""

import random
from collections.abc import Sequence

NUMBERS = [
    *(b"0", b"1", b"2", b"3", b"10", b"11", b"-1", b"-0", b"00", b"01", b"+1", b"--1", b"1048576", b"1048577"),
    *(b"16384", b"16385", b"65536", b"536870912", b"536870913", b"2147483647", b"2147483648", b"4294967296"),
    *(b"9223372036854775807", b"9223372036854775808", b"18446744073709551617", b"999999999999999999"),
    *(b"99999999999999999999999999999999999", b"", b"-", b"1 ", b" 1"),
]
TOKENS = [
    *(b"*", b"$", b"\r\n", b"\r", b"\n", b"+", b"-", b":", b"_", b",", b"#", b"(", b"=", b"!", b"~", b">", b"%", b"|"),
    *(b"\0", b"'", b'"', b"\\", b"\\x4", b"\\x41", b" ", b"\t", b"\v", b"\xff", b"GET", b"ping", b"$-1\r\n", b"*0\r\n"),
    *NUMBERS,
]
NAMES = [
    b"GET",
    b"set",
    b"MGET",
    b"HELLO",
    b"eval",
    b"PING",
    b"UNSUBSCRIBE",
    b"GEORADIUSBYMEMBER_RO",
    b"get1",
    b"X" * 25,
]
LONGEST = 300_000
"""Bytes of the longest input."""


def _word(chance: random.Random) -> bytes:
    if chance.random() < 0.3:
        return chance.choice(NAMES)
    return chance.randbytes(chance.choice((0, 1, 1, 2, 3, 5, 8, 13, 40)))


def _request(chance: random.Random) -> bytes:
    words = [_word(chance) for _ in range(chance.choice((0, 1, 1, 2, 2, 3, 4, 12)))]
    if chance.random() < 0.2:
        quote = chance.choice((b"", b"'", b'"'))
        return b" ".join(quote + word.replace(b"\n", b"") + quote for word in words) + b"\r\n"
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def _reply(chance: random.Random, depth: int = 0) -> bytes:
    kind = chance.choice(b"+-:_,#($$$=!*~>%|" if depth < 4 else b"+:$")
    letter = bytes([kind])
    if kind in b"+-:_,#(":
        return letter + chance.choice((b"", b"OK", b"1", b"inf", b"t")) + b"\r\n"
    if kind in b"$=!":
        if chance.random() < 0.1:
            return letter + b"-1\r\n"
        word = _word(chance)
        return letter + b"%d\r\n%b\r\n" % (len(word), word)
    count = chance.choice((-1, 0, 1, 2, 3))
    values = max(count, 0) * (2 if kind in b"%|" else 1) + (kind == ord("|"))
    return letter + b"%d\r\n" % count + b"".join(_reply(chance, depth + 1) for _ in range(values))


def _stream(chance: random.Random) -> bytes:
    kind = chance.random()
    if kind < 0.55:
        return b"".join(_request(chance) for _ in range(chance.choice((1, 1, 2, 3))))
    if kind < 0.98:
        return b"".join(_reply(chance) for _ in range(chance.choice((1, 1, 2, 3))))
    if kind < 0.998:
        return chance.randbytes(chance.randrange(64))
    # As long as the limits of an inline request and of an unauthenticated one.
    size = chance.choice((16384, 16385, 65534, 65535, 65536, 65537))
    return chance.choice((b"", b"*1\r\n$%d\r\n" % size)) + b"x" * size + chance.choice((b"", b"\n", b"\r\n"))


def _change(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    kind = chance.randrange(8)
    place = chance.randrange(len(data) + 1)
    if kind == 0:
        return data[:place] + chance.choice(TOKENS) + data[place:]
    if kind == 1:
        return data[:place] + chance.choice(TOKENS) + data[place + 1 :]
    if kind == 2:
        return data[:place] + bytes([chance.randrange(256)]) + data[place + 1 :]
    if kind == 3:
        return data[:place]
    if kind == 4:
        return data[:place] + data[place + chance.choice((1, 1, 2, 4, 16)) :]
    if kind == 5:
        end = place + chance.choice((1, 2, 4, 16, 64))
        return data[:end] + data[place:]
    if kind == 6:
        other = chance.choice(others)
        return data[:place] + other[chance.randrange(len(other) + 1) :]
    # Another number where there is one.
    end = place
    while place and data[place - 1 : place].isdigit():
        place -= 1
    while data[end : end + 1].isdigit():
        end += 1
    return data[:place] + chance.choice(NUMBERS) + data[end:]


def one(chance: random.Random, corpus: Sequence[bytes]) -> bytes:
    """One input: a new stream or one of the corpus, with up to five changes."""
    options = bytes([chance.random() < 0.2, chance.randrange(256)])
    data = _stream(chance) if not corpus or chance.random() < 0.6 else chance.choice(corpus)[2:]
    for _ in range(chance.choice((0, 1, 1, 2, 3, 5))):
        data = _change(chance, data, corpus or [b""])
    return options + data[:LONGEST]
