"""What is an address, and what only looks like one."""

import pytest

from slots.address import AddressError, is_host, join, split


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1:6380",
        "localhost:0",
        "redis-0.redis:6379",
        "redis_1:6379",
        "host.example.:1",
        f"{'a' * 63}.{'b' * 63}:65535",
        "[::1]:65535",
        "[fe80::1%eth0]:6379",
    ],
)
def test_addresses_round_trip(text: str) -> None:
    assert join(*split(text)) == text


@pytest.mark.parametrize("text", ["", "6380", ":6380", "h:", "h:x", "h:-1", "h:65536", "::1:6380", "h:\u0661", "h:01"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(AddressError):
        split(text)


@pytest.mark.parametrize(
    "host",
    [
        "a\0b",
        "a\nb",
        "a b",
        "a/b",
        "a" * 64,
        ".".join(["a" * 63] * 4),
        "-a",
        "a-",
        "a..b",
        ".",
        "[localhost]",
        "re\u202edis",  # what follows is shown from right to left
        "re\u200bdis",  # shown as nothing
        "r\u0435dis",  # its second letter is Cyrillic
        "bücher.example",
        "[::1%e\0th]",
        "[fe80::1%]",
        "[127.0.0.1]",
    ],
)
def test_what_only_looks_like_a_host_is_refused_and_shown_as_it_is(host: str) -> None:
    """A name with a NUL in it ended topom, and one with a mark of direction looks like another."""
    with pytest.raises(AddressError) as told:
        split(f"{host}:6379")
    assert str(told.value).isascii()
    assert str(told.value).isprintable()
    assert not is_host(host)


def test_port_0_is_one_to_listen_at_and_none_to_connect_to() -> None:
    assert split("h:0") == ("h", 0)
    with pytest.raises(AddressError, match="1-65535"):
        split("h:0", lowest_port=1)
