"""How to recognise the steps of keys on their way (docs/moving-keys.md), also those with a planted fault."""

from slots.moving import DROP, PLACE, TAKE
from slots.scripts import Script

TAKE_CLAIMED = Script(TAKE.text.replace("claims = redis.call('HMGET', state, unpack(fields))", "claims = {}"))
"""Takes keys that others have claimed."""
PLACE_ANYHOW = Script(PLACE.text.replace("if not holds('accepts', permit, check) then return not_permitted() end", ""))
"""Places without a permit."""
DROP_UNCLAIMED = Script(DROP.text.replace("if claim == mover and place <= deletes", "if place <= deletes"))
"""Deletes keys that it has no claim on."""
for _changed, _script in ((TAKE_CLAIMED, TAKE), (PLACE_ANYHOW, PLACE), (DROP_UNCLAIMED, DROP)):
    assert _changed.text != _script.text


def _digests(*scripts: Script) -> tuple[bytes, ...]:
    return tuple(script.digest.encode() for script in scripts)


TAKING = _digests(TAKE, TAKE_CLAIMED)
PLACING = _digests(PLACE, PLACE_ANYHOW)
DROPPING = (*_digests(DROP, DROP_UNCLAIMED), b"unlink(KEYS[place + 1])")
"""The end of a key in pieces sends the script itself."""
FINISHING = (b"return 'lost' end",)
"""The script that makes the copy of a key in pieces the key."""
SWEEPING = (b"gone = gone + redis.call('EXISTS', KEYS[place])",)
"""The script that deletes keys of slots that a server does not own."""
BATCH = b"__slotferry:position"
"""In each batch of a copy by the replication stream, and wherever else its position is read or written."""
RUNNING = (b"EXEC",)
"""The end of such a batch, which nothing else has that names a position."""
CHANGES = (b"\r\nINCR\r\n", b"\r\nRPUSH\r\n", b"\r\nAPPEND\r\n", b"\r\nHINCRBY\r\n")
"""Commands of such a batch that have another effect if they run twice. Batches of the snapshot have none; a script that
is in every batch names one of them."""
