"""RESP replies made by the proxy itself."""

from collections.abc import Iterable, Mapping

OK = b"+OK\r\n"


def error(message: str) -> bytes:
    """An error; ``message`` begins with its code. Line ends in it become spaces, as in Redis.

    Bytes that are not UTF-8 are surrogates in ``message``.
    """
    return b"-%b\r\n" % message.replace("\r", " ").replace("\n", " ").encode("utf-8", "surrogateescape")


def refused_over_slots(name: str, why: str) -> bytes:
    """The error for a request over several slots that the proxy does not take, with the way out."""
    return error(
        f"ERR {name} over several slots: {why}; with a hash tag in common ({{tag}} in the keys' names) a server does it"
    )


def shown(value: bytes) -> str:
    """An argument as Redis repeats it in an error, for :func:`error`: up to the first zero byte."""
    return value.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def bulk(value: bytes | str) -> bytes:
    """A bulk string."""
    data = value.encode() if isinstance(value, str) else value
    return b"$%d\r\n%b\r\n" % (len(data), data)


def null(protocol: int) -> bytes:
    """No value."""
    return b"_\r\n" if protocol == 3 else b"$-1\r\n"


def integer(value: int) -> bytes:
    """A number."""
    return b":%d\r\n" % value


def array(items: Iterable[bytes]) -> bytes:
    """An array of replies."""
    made = list(items)
    return b"*%d\r\n%b" % (len(made), b"".join(made))


def flags(names: Iterable[str], protocol: int) -> bytes:
    """A set of names; an array in RESP2."""
    made = array(map(bulk, names))
    return b"~" + made[1:] if protocol == 3 else made


def mapping(items: Mapping[str, bytes], protocol: int) -> bytes:
    """A map of replies by name; a flat array in RESP2."""
    body = b"".join(bulk(name) + value for name, value in items.items())
    return b"%%%d\r\n%b" % (len(items), body) if protocol == 3 else b"*%d\r\n%b" % (len(items) * 2, body)


def verbatim(text: str, protocol: int) -> bytes:
    """Text for a person."""
    if protocol == 3:
        data = text.encode()
        return b"=%d\r\ntxt:%b\r\n" % (len(data) + 4, data)
    return bulk(text)
