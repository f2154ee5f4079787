"""Carries small keys from a source to its target through this process, where MIGRATE cannot do it or must not.

The source cannot: it does not reach the target, or there is TLS between them that it does not speak. It must not:
MIGRATE deletes a key at once, and an operator wants to know first that replicas of the target have it.

The guarantees are those of a key that goes in pieces, and so is the order (:mod:`migrator.bigkeys`), for a batch of
keys at a time:

1. claim and DUMP them, in one step;
2. RESTORE them under temporary names, with a short expiry;
3. look whether the claims are held still;
4. make the copies the keys, in one step at the target, and have replicas confirm them;
5. delete the keys at the source and give the claims back, in one step there.

Proxies take a claimed key for one that is at the source: who reads it is served there, who writes it waits for the
end. Whoever stops between any two of these leaves claims that the next call drops, and copies that expire or that the
source's replace.

**bounded**: one batch is held at a time, of ``enough_bytes`` and one key.
"""

from __future__ import annotations

import hiredis

from migrator.claims import Claims, Dumped
from migrator.connection import Connection, pack
from migrator.ends import Ends, temporary_name
from migrator.errors import CopyLost, TargetUnavailable
from migrator.manner import UNBOUNDED, WHOLE, Manner
from migrator.pieces.deadlines import NEVER
from migrator.transfer import MOST_SETTLINGS, Transfer
from slots.moving import WRITING, Moved
from slots.replies import one_of

EXPIRY_MILLISECONDS = 30_000
"""After which a copy that was not made the key is gone."""
MOST_ATTEMPTS = 5
"""How often in a row a batch's copies may get lost."""

_FINISH = """
for index = 1, #KEYS, 2 do
  if redis.call('EXISTS', KEYS[index]) == 0 then return 'lost' end
end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
for index = 1, #KEYS, 2 do
  local temporary, name, deadline = KEYS[index], KEYS[index + 1], ARGV[1 + (index + 1) / 2]
  if ARGV[1] == '1' and redis.call('EXISTS', name) == 1 then
    redis.call('UNLINK', temporary)
  else
    redis.call('UNLINK', name)
    if deadline ~= '-1' and now >= tonumber(deadline) then
      redis.call('UNLINK', temporary)
    else
      redis.call('RENAME', temporary, name)
      if deadline == '-1' then redis.call('PERSIST', name) else redis.call('PEXPIREAT', name, deadline) end
    end
  end
end
return 'done'
"""
assert NEVER == -1, "the script knows it by this number"


class Carrier:
    """Carries the keys of one database after the other.

    Use :meth:`open`.
    """

    def __init__(
        self, source: Connection, target: Connection, transfer: Transfer, manner: Manner, temporary: bytes
    ) -> None:
        self._target = target
        self._transfer = transfer
        self._claims = Claims(source)
        self._source = source
        self._manner = manner
        self._temporary = temporary
        self.longest_seconds = 0.0
        """The longest that a command has taken so far."""

    @classmethod
    async def open(cls, ends: Ends, source: Connection, transfer: Transfer, manner: Manner, name: bytes) -> Carrier:
        """Connect to the target.

        Args:
            source: whose selected database will be that of the keys.
            transfer: which has the permit, and settles.
            manner: its bounds say what is small.
            name: no other carrier of the call has it.
        """
        target = await ends.at_target(WRITING)
        return cls(source, target, transfer, manner, temporary_name(ends.source, name + b":carried"))

    async def move(
        self, database: int, keys: list[bytes], enough_bytes: int, *, whole: bool = False
    ) -> tuple[Moved, float]:
        """Carry keys; give what was done with them and the seconds of the longest command, as :class:`Transfer` does.

        Args:
            enough_bytes: once keys of so many bytes have been found, the rest is left for another call.
            whole: whether keys go in one piece, however big they are.

        Raises:
            TooFewReplicas: the keys are at the source still, and may be at the target as well.
            CopyLost: copies do not last at the target.
            TargetUnavailable, TargetRefused, SourceUnavailable, SourceRefused: see there.
        """
        await self._target.select(database)
        for attempt in range(1, MOST_ATTEMPTS + 1):
            seconds = 0.0
            dumped = await self._take(database, keys, enough_bytes, whole)
            seconds = max(seconds, self._source.seconds)
            if dumped.keys:
                try:
                    seconds = max(seconds, await self._write(database, dumped))
                except CopyLost:
                    await self._claims.release(database, *dumped.keys, delete=False)
                    if attempt == MOST_ATTEMPTS:
                        raise
                    continue
                await self._manner.confirmation.wait(self._target)
                await self._claims.release(database, *dumped.keys, delete=True)
                seconds = max(seconds, self._source.seconds)
            break
        self.longest_seconds = max(self.longest_seconds, seconds)
        return Moved(dumped.looked_at, len(dumped.keys), dumped.size, dumped.big), seconds

    async def _take(self, database: int, keys: list[bytes], enough_bytes: int, whole: bool) -> Dumped:
        bounds = WHOLE if whole else self._manner.bounds
        for _ in range(MOST_SETTLINGS):
            dumped = await self._claims.take_and_dump(
                database, keys, self._transfer.permit, bounds.elements, bounds.bytes, min(enough_bytes, UNBOUNDED)
            )
            if dumped is not None:
                return dumped
            await self._transfer.settle()
        raise TargetUnavailable(
            f"the permit to move keys from {self._source.address} to {self._target.address} did not last in "
            f"{MOST_SETTLINGS} attempts: others have moves of unknown outcome all the time"
        )

    async def _write(self, database: int, dumped: Dumped) -> float:
        """Write the copies and make them the keys; the seconds of the longest command."""
        temporary = [b"%s:%d" % (self._temporary, number) for number in range(len(dumped.keys))]
        restores = b"".join(
            pack("RESTORE", name, EXPIRY_MILLISECONDS, payload, "REPLACE")
            for name, payload in zip(temporary, dumped.payloads, strict=True)
        )
        replies = await self._target.send(restores, len(temporary))
        seconds = self._target.seconds
        for reply in replies:
            if isinstance(reply, hiredis.ReplyError):
                raise self._target.refusal(reply)
            with self._target.understood("RESTORE"):
                one_of(reply, b"OK")
        if not await self._claims.hold(database, *dumped.keys):
            raise CopyLost(f"claims have gone from source {self._source.address}: somebody flushed it")
        names = [name for pair in zip(temporary, dumped.keys, strict=True) for name in pair]
        keeps_target = "1" if self._transfer.keeps_target else "0"
        said = await self._target.call("EVAL", _FINISH, len(names), *names, keeps_target, *dumped.deadlines)
        with self._target.understood("EVAL"):
            # What is not said to be done is not deleted at the source.
            one_of(said, b"done", b"lost")
        if said == b"lost":
            raise CopyLost(
                f"copies at target {self._target.address} were gone when they were to become the keys; somebody "
                "deleted them, or the target evicted them because it is at its maxmemory"
            )
        return max(seconds, self._target.seconds)
