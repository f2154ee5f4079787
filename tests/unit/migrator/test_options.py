"""How long replicas are waited for."""

from contextlib import nullcontext
from typing import Any, cast

from migrator.connection import Connection
from migrator.options import CONFIRM_SECONDS, LEAST_BYTES_PER_SECOND, MOST_LAG_BYTES, Confirmation
from slots.replies import Info


class Target:
    """A server with one replica, which came a moment ago; notes how long WAIT may take."""

    address = "t:1"
    reply_seconds = 1.0
    milliseconds = 0

    async def select(self, database: int) -> None:
        assert database == 0

    async def info(self, section: str) -> Info:
        return Info.parse(b"master_repl_offset:9000000000000\r\nslave0:ip=r,port=1,state=online,offset=0,lag=0\r\n")

    def understood(self, command: str) -> nullcontext[None]:
        return nullcontext()

    async def call(self, *command: Any, limit: float = 0.0) -> object:
        if command[0] == "WAIT":
            self.milliseconds = command[2]
            return 1
        return b"OK"


async def test_bounded_a_replica_that_has_confirmed_nothing_yet_is_not_waited_for_for_days() -> None:
    target = Target()
    await Confirmation(1).caught_up(cast(Connection, target))
    most = CONFIRM_SECONDS + MOST_LAG_BYTES / LEAST_BYTES_PER_SECOND
    assert target.milliseconds == int(most * 1000)
    assert most < 120
