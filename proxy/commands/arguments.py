"""What many families say and read alike: numbers and names in arguments, usual errors, the command table's version."""

from proxy.commands import replies
from proxy.settings import ProxySettings
from slots import keys
from slots.keys import INTEGER

TABLE_VERSION = "7.0.15"
"""The version of Redis whose commands the command table has."""

NOT_AN_INTEGER = replies.error(keys.NOT_AN_INTEGER)
SYNTAX_ERROR = replies.error(keys.SYNTAX_ERROR)


def mode(settings: ProxySettings) -> str:
    """The mode of the proxy in HELLO and INFO."""
    return "cluster" if settings.cluster_mode else "standalone"


def integer(text: bytes) -> int | None:
    """A number as Redis reads it; None if it is not one."""
    value = int(text) if INTEGER.fullmatch(text) else None
    return value if value is not None and -(2**63) <= value < 2**63 else None


def printable(text: bytes) -> bool:
    """Whether a client may have this name."""
    return all(33 <= byte <= 126 for byte in text)
