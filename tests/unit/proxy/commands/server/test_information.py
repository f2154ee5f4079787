"""What INFO puts together from what the masters say."""

import pytest

from proxy.commands.server.information import human, sum_keyspaces


def test_keyspaces_are_summed() -> None:
    first = b"$90\r\n# Keyspace\r\ndb0:keys=10,expires=1,avg_ttl=1000\r\ndb3:keys=2,expires=0,avg_ttl=0\r\n\r\n"
    second = b"=90\r\ntxt:# Keyspace\r\ndb0:keys=5,expires=3,avg_ttl=5000\r\ndb12:keys=1,expires=0,avg_ttl=0\r\n\r\n"
    own = b"$90\r\n# Keyspace\r\ndb0:keys=3,expires=0,avg_ttl=0\r\nslotferry:2\r\n\r\n"
    assert sum_keyspaces([own, first]) == {
        "db0": "keys=11,expires=1,avg_ttl=1000",
        "db3": "keys=2,expires=0,avg_ttl=0",
    }
    assert sum_keyspaces([own.replace(b"keys=3", b"keys=2")]) == {}
    newer = b"$90\r\n# Keyspace\r\ndb12:keys=4,expires=0,avg_ttl=0,subexpiry=0\r\n\r\n"
    assert sum_keyspaces([first, second, newer, b"-ERR server 127.0.0.1:1 closed the connection\r\n", b""]) == {
        "db0": "keys=15,expires=4,avg_ttl=4000",
        "db3": "keys=2,expires=0,avg_ttl=0",
        "db12": "keys=5,expires=0,avg_ttl=0",
    }


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0B"), (1023, "1023B"), (1536, "1.50K"), (5 * 2**20, "5.00M"), (2**31, "2.00G"), (2**40, "1.00T")],
)
def test_bytes_are_shown_as_redis_does(size: int, shown: str) -> None:
    assert human(size) == shown
