"""Addresses as an operator writes them: ``127.0.0.1:6380``, ``localhost:6380``, ``[::1]:6380``.

Every address that comes from outside is read by this module. A host is an IP address, or a name of ASCII letters,
digits, hyphens and underscores with dots between them, as DNS has them. So two addresses that look the same are the
same. An address cannot contain a mark that turns the direction of writing, a letter of another script, or a byte that a
C library takes for the end.
"""

import ipaddress
import re

MOST_NAME = 253
"""Characters of a name."""
LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
"""The text between two dots of a name."""
ADDRESS = re.compile(r"[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]{1,32})?")
"""Characters of an IP address. The module ``ipaddress`` takes any text after a percent sign."""
PORT = re.compile(r"0|[1-9][0-9]{0,4}")
MOST_PORT = 65535


class AddressError(ValueError):
    """The text is not ``host:port``."""


def split(address: str, lowest_port: int = 0) -> tuple[str, int]:
    """Host (without the brackets of an IPv6 address) and port of ``address``.

    Args:
        lowest_port: 1 for a port to connect to. 0 also allows port 0, which means any free port to listen at.

    Raises:
        AddressError: with a sentence that says what is wrong.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host:
        raise AddressError(f"{address!a} is not host:port, for example 127.0.0.1:6380 or [::1]:6380")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    elif ":" in host and ADDRESS.fullmatch(host):
        raise AddressError(f"{address!a}: an IPv6 address is written in brackets, for example [::1]:6380")
    if not is_host(host) or bracketed is not (":" in host):
        raise AddressError(
            f"{address!a}: {host!a} is neither an IP address nor a host name of ASCII letters, digits, hyphens and "
            f"underscores, with dots between parts of 63 characters at most, and {MOST_NAME} in all; write host:port"
        )
    if PORT.fullmatch(port) is None or not lowest_port <= int(port) <= MOST_PORT:
        raise AddressError(f"{address!a}: {port!a} is not a port within {lowest_port}-{MOST_PORT}; write host:port")
    return host, int(port)


def is_host(text: str) -> bool:
    """Whether ``text`` is a host name, or an IPv4 or IPv6 address, the latter without brackets."""
    if ADDRESS.fullmatch(text) is not None:
        try:
            ipaddress.ip_address(text)
        except ValueError:
            pass
        else:
            return True
    # A dot at the end says that the name is a whole one.
    labels = text.removesuffix(".").split(".")
    return len(text) <= MOST_NAME and all(LABEL.fullmatch(label) is not None for label in labels)


def join(host: str, port: int) -> str:
    """The reverse of :func:`split`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
