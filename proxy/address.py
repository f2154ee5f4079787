"""Addresses as an operator writes them: ``127.0.0.1:6380``, ``localhost:6380``, ``[::1]:6380``."""

import ipaddress
import re

HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_.])?")


class AddressError(ValueError):
    """The text is not ``host:port``."""


def split(address: str) -> tuple[str, int]:
    """Host (without the brackets of an IPv6 address) and port of ``address``.

    Raises:
        AddressError: with a sentence that says what is wrong.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host:
        raise AddressError(f"{address!r} is not host:port, for example 127.0.0.1:6380 or [::1]:6380")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise AddressError(f"{address!r}: an IPv6 address is written in brackets, for example [::1]:6380")
    if not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise AddressError(f"{address!r}: {port!r} is not a port within 0-65535")
    return host, int(port)


def is_host(text: str) -> bool:
    """Whether ``text`` is a host name, or an IPv4 or IPv6 address, the latter without brackets."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return HOST_NAME.fullmatch(text) is not None
    return True


def join(host: str, port: int) -> str:
    """The reverse of :func:`split`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
