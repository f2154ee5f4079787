"""What a client of redis-py raises when its server cannot be reached, does not answer in time, or refuses."""

import os
import re

from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import InvalidResponse, OutOfMemoryError, RedisError
from redis.exceptions import TimeoutError as NoAnswer

from slots.tlswords import Trouble, trouble

FAILURES = (RedisError, OSError, TimeoutError, RuntimeError)
"""RuntimeError is here because uvloop raises it for a write to a connection that was just reset."""
AT_MAXMEMORY = "it is at its maxmemory"
"""What the error reply OOM means."""
_ERRNO = re.compile(r"(?:^Error |\[Errno |\()(-?\d+)(?:\]| connecting| while|, ')")
_OF_UVLOOP = "unable to perform operation"
MOST_WORDS = 1000
"""Characters of what a server said that are told."""
_HTTP = ('"H"', '"<"')
_OF_TLS = {
    Trouble.OTHER_HOST: "its certificate is not for this host; see redis_tls_verify_host",
    Trouble.EXPIRED: "its certificate has expired",
    Trouble.TOO_EARLY: "its certificate is not valid yet; look at the clocks of both machines",
    Trouble.UNKNOWN_AUTHORITY: "no authority of redis_tls_ca has signed its certificate",
    Trouble.NO_TLS: "it speaks no TLS; look at redis_tls and the port",
    Trouble.CERTIFICATE_WANTED: "it wants to be shown a certificate; see redis_tls_certificate",
    Trouble.NOT_TRUSTED: "it does not know the authority that has signed the certificate in redis_tls_certificate",
    Trouble.NOT_TAKEN: "the certificate in redis_tls_certificate has expired, or is not for clients",
    Trouble.NOT_FOR_CLIENTS: "the certificate in redis_tls_certificate is not for clients",
}


def in_words(error: BaseException) -> str:
    """One of :data:`FAILURES` for an operator: what the server said, or what became of the connection, and not in the
    words of Python and redis-py.

    A server may say anything, and this comes to a terminal: what cannot be shown is left out, and so is the rest of
    what is too long.
    """
    said = _in_words(error)
    said = "".join(letter if letter.isprintable() else " " for letter in said[: MOST_WORDS + 1])
    return said if len(said) <= MOST_WORDS else f"{said[: MOST_WORDS - 3]}..."


def _in_words(error: BaseException) -> str:
    text = str(error).rstrip(".")
    if isinstance(error, InvalidResponse) and text.lower().startswith("protocol error"):
        if any(sign in text for sign in _HTTP):
            return "it answers by HTTP, as topom and web servers do"
        return "it does not speak Redis's protocol"
    if isinstance(error, OutOfMemoryError):
        return f"{AT_MAXMEMORY}; raise that or free memory"
    if isinstance(error, TimeoutError | NoAnswer) or not text:
        return "no answer in time"
    if isinstance(error, NoConnection | OSError | RuntimeError):
        return _of_connection(error, text)
    return text


def _of_connection(error: BaseException, text: str) -> str:
    # First: OpenSSL's errors have numbers too, which mean something else to the system.
    if of_tls := trouble(text):
        return _OF_TLS[of_tls]
    if isinstance(error, RuntimeError):
        return "the connection broke" if text.startswith(_OF_UVLOOP) else text
    found = _ERRNO.search(text)
    number = error.errno if isinstance(error, OSError) and error.errno else int(found[1]) if found else 0
    if number > 0:
        said = os.strerror(number)
        return said[0].lower() + said[1:]
    if number < 0:
        return "its name is not known"
    if text.endswith("Connection lost"):
        return "the connection broke"
    if "closed" in text.lower():
        return "it closed the connection"
    return text
