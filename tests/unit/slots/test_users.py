"""What may be said of a user, wherever it is kept."""

from typing import Any

import pytest
from pydantic import ValidationError

from slots.messages.control import Heartbeat, parse_proxy
from slots.messages.load import Connections
from slots.messages.message import encode
from slots.users import MOST_CONNECTIONS, MOST_PER_SECOND, UserSettings

ADA: dict[str, Any] = {"name": "ada", "no_password": True}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"name": ""}, "1 to 128 printable ASCII characters"),
        ({"name": "a\tb"}, "1 to 128 printable ASCII characters"),
        ({"name": "x" * 129}, "1 to 128 printable ASCII characters"),
        ({"no_password": False}, "give one of password, password_sha256 and no_password"),
        ({"password": "x"}, "give one of password, password_sha256 and no_password"),
        ({"no_password": False, "password_sha256": "0" * 63}, "64 hexadecimal digits"),
        ({"rules": "+nosuch"}, "nosuch"),
        ({"prefix": ""}, "1 to 64 letters"),
        ({"prefix": "shop *"}, "1 to 64 letters"),
        ({"prefix": "__slotferry:a"}, "names that begin so are Slotferry's"),
        ({"databases": []}, "at least 1"),
        ({"databases": [-1]}, "greater than or equal to 0"),
        ({"addresses": ["nowhere"]}, "neither an IP address nor a network"),
        ({"addresses": ["::ffff:10.0.0.1"]}, "write it as one of those"),
        ({"requests_per_second": MOST_PER_SECOND + 1}, "less than or equal"),
        ({"connections": MOST_CONNECTIONS + 1}, "less than or equal"),
        ({"over_limit": "wait"}, "delay"),
        ({"worker_percent": 0}, "greater than or equal to 1"),
        ({"worker_percent": 101}, "less than or equal to 100"),
        ({"redonly": True}, "redonly"),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        UserSettings.model_validate({**ADA, **fields})


def test_no_secret_is_shown_and_defaults_need_not_be_kept() -> None:
    given = {"name": "ada", "password_sha256": "ab" * 32, "read_only": True}
    user = UserSettings.model_validate({**given, "databases": None, "admin": None})
    assert "abab" not in repr(user)
    assert user.model_dump(exclude_defaults=True).keys() == given.keys()
    assert not user.has_limits
    assert UserSettings(name="a", no_password=True, bytes_per_second=1).has_limits
    assert UserSettings(name="a", no_password=True, worker_percent=1).has_limits


def test_what_proxies_say_of_the_largest_limit_of_connections_is_a_message() -> None:
    """If it were none, all proxies would be cut off from topom by one user."""
    said = Connections(MOST_CONNECTIONS, 0, 0, MOST_CONNECTIONS, MOST_CONNECTIONS)
    assert UserSettings(name="ada", no_password=True, connections=MOST_CONNECTIONS).connections == said.limit
    heartbeat = Heartbeat(epoch=1, connections={"ada": said})
    assert parse_proxy(encode(heartbeat)) == heartbeat
