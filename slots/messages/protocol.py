"""Which protocol proxies and migrators speak with topom: a number, so that those of other versions either understand
each other or are told what to do.

A proxy and a migrator say it in their first message. topom understands the protocols from :data:`OLDEST` to
:data:`SPOKEN`, and speaks with each peer in the peer's. So topoms are upgraded first. A new field that may be ignored
needs no new number, and neither does a new message of topom's that may be. Anything else does: a new message of a
proxy's or a migrator's, a new value of a closed list, one more item of a list of fixed length, another meaning. So does
another use of Slotferry's keys at servers, which proxies share with topom's migrators (:mod:`slots.reserved`).

:class:`~slots.messages.control.Reload` is of that kind. A proxy that does not know it ignores it and does not answer.
topom waits for a bounded time, and tells the operator which proxies did not answer. A topom that does not know it never
sends it, and so gets no answer to it.
"""

import json

from slots.messages.message import MessageError
from slots.version import program_version

SPOKEN = 1
OLDEST = 1


class OtherProtocol(MessageError):
    """The peer speaks a protocol that is not understood here. The text says what to upgrade."""


def check(text: str, peer: str) -> None:
    """Look at the protocol of a first message, before anything else of it is read.

    Args:
        text: as it came. What is no registration is left to who reads the rest.
        peer: ``proxy`` or ``migrator``.

    Raises:
        OtherProtocol: it is another one than topom understands, or none.
    """
    try:
        said = json.loads(text)
    except ValueError:
        return
    if not isinstance(said, dict) or not str(said.get("type")).startswith("register"):
        return
    protocol = said.get("protocol")
    if type(protocol) is int and OLDEST <= protocol <= SPOKEN:
        return
    version = f"{said.get('version', 'unknown')!s:.40}"
    speaks = f"protocol {protocol!s:.20}" if "protocol" in said else "a protocol without a number"
    understands = f"{OLDEST}" if OLDEST == SPOKEN else f"{OLDEST} to {SPOKEN}"
    remedy = "upgrade the topoms first" if type(protocol) is int and protocol > SPOKEN else f"upgrade the {peer}"
    raise OtherProtocol(
        f"the {peer} (version {version}) speaks {speaks}, and this topom (version {program_version()}) understands "
        f"protocol {understands}: {remedy}"
    )
