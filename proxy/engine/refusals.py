"""Errors that the engine gives in several places."""

from slots.helpfulrules import helpful
from slots.keynames import readable
from slots.reserved import REFUSAL
from slots.slot import CHANGING

FAILED = b"-ERR the proxy failed to run this command; its log says why\r\n"
LEFT = b"-TRYAGAIN the connection was closed at the client's side while the request was held; nothing was run\r\n"
NO_SERVER = b"-ERR no group has a server yet; add one with 'slotferry group add'\r\n"
_NOT_HTTP = (
    b"This is a Slotferry proxy. It speaks the protocol of Redis, as in redis-cli, and no HTTP. The HTTP API is "
    b"topom's, and the proxy's metrics have an address of their own.\n"
)
NOT_HTTP = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
    % (len(_NOT_HTTP), _NOT_HTTP)
)
"""For those who point an HTTP client at a proxy."""
OUT_OF_MEMORY = b"-ERR the proxy is out of memory for this request\r\n"
OWN_KEYS = b"-%b\r\n" % REFUSAL.encode()
RULES_CHANGE = (
    b"-TRYAGAIN the product's slot rules are being changed, and the slot of this key with them; nothing was run, try "
    b"again in a moment\r\n"
)


def crossslot(one: bytes, slot: int, other: bytes, other_slot: int) -> bytes:
    """The error for two keys of one request, or of one transaction and its watch, that have different slots. It begins
    as Redis Cluster's, and ends with a way out: the slot rule that would help, if their names suggest one, or else a
    hash tag."""
    if CHANGING in (slot, other_slot):
        return RULES_CHANGE
    text = f"'{readable(one)}' has slot {slot}, '{readable(other)}' {other_slot}"
    rule = helpful(one, other)
    if rule is not None:
        whom = "both" if rule.tag is None else "all such keys"
        text += f"; slot rule '{rule.pattern}' would give {whom} one slot"
    else:
        text += "; a hash tag in common ({tag} in their names) would give them one slot"
    return f"-CROSSSLOT Keys in request don't hash to the same slot: {text}\r\n".encode()


def slow(address: str) -> bytes:
    """The error for a request of a sheddable user to a server that is slow."""
    return (
        f"-TRYAGAIN server {address} is slow, and such requests of this user are refused meanwhile (sheddable); "
        f"nothing was run, try again later\r\n"
    ).encode()


def over_limit(user: str, requests: int, octets: int, percent: int = 0) -> bytes:
    """The error for a request of a user that asks for more than its limits."""
    limits = [
        f"{count} {what}{'s' * (count != 1)}" for count, what in ((requests, "request"), (octets, "byte")) if count
    ]
    limits = [f"{' or '.join(limits)} a second"] if limits else []
    limits += [f"{percent}% of a worker's time"] if percent else []
    return (
        f"-TRYAGAIN user {user} asks for more than its {' or '.join(limits)}; nothing was run, try again later, or "
        f"have its limits raised\r\n"
    ).encode()


TOO_LARGE = b"-ERR the reply of server "
"""How that begins which :func:`too_large` gives."""


def too_large(address: str, most: int, setting: str = "") -> bytes:
    """The error in place of a reply to a request of the proxy's own that has more bytes than are kept. ``setting``: the
    one that says so."""
    text = f"{TOO_LARGE.decode()}{address} is larger than the {most} bytes that the proxy keeps of one"
    return f"{text} ({setting})\r\n".encode() if setting else f"{text}\r\n".encode()
