"""What redis-py raises when a connection ends at the worst moment is among the failures."""

import redis
import uvloop

from slots.access import ServerAccess
from slots.failures import FAILURES


def test_a_connection_that_is_reset_right_before_a_command(redis_address: str) -> None:
    async def use() -> Exception | None:
        host, _, port = redis_address.rpartition(":")
        client = ServerAccess().client(host, int(port), single_connection_client=True)
        try:
            await client.ping()
            assert client.connection is not None
            client.connection._writer.transport.abort()  # type: ignore[union-attr]
            await client.ping()
        except Exception as error:
            return error
        finally:
            await client.aclose()
        return None

    # redis-py may also find out by itself, and then connects anew.
    error = uvloop.run(use())
    assert error is None or isinstance(error, FAILURES)


def test_what_servers_answer_and_what_sockets_do() -> None:
    assert issubclass(redis.ResponseError, FAILURES)
    assert issubclass(redis.ConnectionError, FAILURES)
    assert issubclass(ConnectionResetError, FAILURES)
    assert not issubclass(KeyError, FAILURES)
