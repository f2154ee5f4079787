"""What redis-py raises when a connection ends at the worst moment is among the failures."""

import os

import pytest
import redis
import uvloop

from slots.access import ServerAccess
from slots.failures import FAILURES, MOST_WORDS, in_words
from slots.replies import NotUnderstood


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


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (redis.ConnectionError("Error 111 connecting to h:1. Connect call failed ('h', 1)."), os.strerror(111)),
        (redis.ConnectionError("Error Multiple exceptions: [Errno 111] Connect call failed"), os.strerror(111)),
        (redis.ConnectionError("Error while reading from h:1 : (104, 'Connection reset by peer')"), os.strerror(104)),
        (redis.ConnectionError("Error 104 while writing to socket. Connection reset by peer."), os.strerror(104)),
        (redis.ConnectionError("Error UNKNOWN while writing to socket. Connection lost."), "the connection broke"),
        (redis.ConnectionError("Error -2 connecting to h:1. Name or service not known."), "its name is not known"),
        (redis.ConnectionError("Connection closed by server."), "it closed the connection"),
        (ConnectionRefusedError(111, "refused"), os.strerror(111)),
        (redis.TimeoutError("Timeout reading from h:1"), "no answer in time"),
        (TimeoutError(), "no answer in time"),
        (RuntimeError("unable to perform operation on <TCPTransport>"), "the connection broke"),
        (redis.InvalidResponse('Protocol error, got "H" as reply type byte'), "it answers by HTTP, as topom does"),
        (redis.InvalidResponse('Protocol error, got "x" as reply type byte'), "it does not speak Redis's protocol"),
        (NotUnderstood("INFO has no role"), "INFO has no role"),
        (redis.AuthenticationError("WRONGPASS invalid pair (5)"), "WRONGPASS invalid pair (5)"),
        (redis.ResponseError("ERR unknown command"), "ERR unknown command"),
    ],
)
def test_a_failure_is_said_without_the_words_of_libraries(error: Exception, words: str) -> None:
    said = in_words(error)
    assert said.lower().startswith(words.lower().removesuffix(", as topom does"))
    assert not any(word in said for word in ("Errno", "Error ", "Transport", "Protocol"))


@pytest.mark.parametrize("kind", [redis.ResponseError, redis.ConnectionError, RuntimeError])
def test_what_a_server_says_is_fit_for_a_terminal(kind: type[Exception]) -> None:
    """Escape sequences of a terminal are what another program, or an attacker, may answer."""
    assert in_words(kind("no\x1b[2J way\x9b31m\r\nthere: é")) == "no [2J way 31m  there: é"
    long = in_words(kind("x" * 1_000_000))
    assert (len(long), long[-4:]) == (MOST_WORDS, "x...")
