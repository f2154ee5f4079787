"""What the checked traffic expects is what Redis holds: every kind of value, version by version.

Run against fakeredis: this is about the generator's own logic. Tests with real servers are in tests/integration.
"""

from typing import Any

import fakeredis
import pytest

from slotferry.traffic.collections import Hash, List, Set, SortedSet, Stream
from slotferry.traffic.content import Counter, Kind, Text
from slotferry.traffic.keys import kinds_of


class RawRedis(fakeredis.FakeRedis):
    """Replies as a RESP2 server sends them."""

    def raw(self, *arguments: Any) -> Any:
        connection = self.connection_pool.get_connection()
        try:
            connection.send_command(*arguments)
            return connection.read_response()
        finally:
            self.connection_pool.release(connection)


KINDS = {type(kind).__name__: kind for kind in kinds_of("mixed")}


def test_every_kind_of_value_is_in_the_mix() -> None:
    assert set(KINDS) >= {kind.__name__ for kind in (Text, Counter, Hash, List, Set, SortedSet, Stream)}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("index", [3, 77])
def test_each_version_reads_as_expected(kind: Kind, index: int) -> None:
    client = RawRedis(protocol=2)
    for version in range(1, 40):
        write = kind.write(index, version)
        reply = client.raw(*write.arguments)
        assert (write.tidy(reply) if write.tidy else reply) == write.reply, (version, write.arguments[:2])
        assert bool(client.exists(write.arguments[1])) == kind.present(version)
        for call in (kind.whole(index), *(kind.part(index, choice) for choice in range(5))):
            reply = client.raw(*call.arguments)
            assert (call.tidy(reply) if call.tidy else reply) == call.expected(version), (version, call.arguments)
