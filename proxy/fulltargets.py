"""What goes on while a target takes no keys, because it is at its maxmemory: reads and deletes of keys at the source.

A read runs at the source as one of a key that goes in pieces does (:mod:`proxy.sourcereads`). DEL and UNLINK take the
keys away at the source, in one step with the look at the permit and the claims there (:data:`slots.moving.DELETE`):
**one-way**, nothing that an earlier attempt has sent can arrive later, and nobody has a copy in hand.

Before that the target says that it has none of the keys. By the same permit none can come there but with the source
giving it away; so what was taken away at the source was all there was, and nothing that is written at the target
since is touched. Keys that had left the source by then are deleted at the target, as any other. Where the target has
a copy already, left from an attempt that was settled, nothing is deleted. **drained**: the slot counts as in use until
the client is answered.

Everything else gets the error that the move gave. **bounded**: by the limits of the two connections.
"""

from collections.abc import Callable
from functools import partial

import hiredis

from proxy.engine.backend import command
from proxy.engine.router import Router
from proxy.engine.session import Session
from proxy.move import Origin
from proxy.permits import Permits
from proxy.sourcereads import SourceReads, read_keys
from slots.moving import DELETE, STATE

DELETES = frozenset({b"DEL", b"UNLINK"})
MOST_DELETED = 1000
"""Keys of one DEL or UNLINK that may be taken away so."""

Again = Callable[[Session, int, list[bytes]], None]


class FullTargets:
    """The reads and deletes of one worker's sessions whose keys a target does not take.

    Args:
        router: tells the slot of a key.
        permits: by which keys are moved, and deleted.
        reads: the reads at sources.
        again: has keys (all of one slot) of the request at the front of a session moved once more, alone.
    """

    def __init__(self, router: Router, permits: Permits, reads: SourceReads, again: Again) -> None:
        self._router = router
        self._permits = permits
        self._reads = reads
        self._again = again

    def can_begin(self, sleeper: object, slot: int) -> bool:
        """Whether this is a session whose request may run at the source of a slot."""
        return isinstance(sleeper, Session) and bool(self._keys_of(sleeper, slot)[1])

    def begin(self, sleeper: object, slot: int, origin: Origin, target: str, error: bytes) -> bool:
        """Run the request of a session that waits for nothing else; false if it cannot be run so.

        Args:
            error: the answer where it turns out that it cannot.
        """
        if not isinstance(sleeper, Session) or sleeper.has_left():
            return False
        name, keys = self._keys_of(sleeper, slot)
        if not keys:
            return False
        self._router.loop.hold_slot(slot)
        if name in DELETES:
            self._delete(sleeper, slot, origin, target, error, keys)
        else:
            self._reads.begin(sleeper, origin, partial(self._leave, slot), partial(self._not_read, sleeper, slot, keys))
        return True

    def _keys_of(self, session: Session, slot: int) -> tuple[bytes, list[bytes]]:
        """The command at the front, and its keys if it reads or deletes these alone and they are of the slot."""
        front = session.front()
        if front is None:
            return b"", []
        argv, _ = front
        name = argv[0].upper()
        keys = argv[1 : MOST_DELETED + 2] if name in DELETES else read_keys(argv)
        if len(keys) > MOST_DELETED or any(self._router.slot_of_key(key) != slot for key in keys):
            return name, []
        return name, keys

    def _leave(self, slot: int) -> bool:
        self._router.loop.release_slot(slot)
        return True

    def _not_read(self, session: Session, slot: int, keys: list[bytes]) -> None:
        # Some have left, or the source did not say: a move of its own tells.
        self._leave(slot)
        self._again(session, slot, keys)

    # -- deletes -------------------------------------------------------------------------------------------

    def _delete(
        self, session: Session, slot: int, origin: Origin, target: str, error: bytes, keys: list[bytes]
    ) -> None:
        permit = self._permits.get(origin.address, target)
        keys = list(dict.fromkeys(keys))

        def looked(reply: bytes) -> None:
            if reply != b":0\r\n" or session.has_left():
                self._leave(slot)
                session.fail(error)
                return
            request = command(("EVAL", DELETE, 1 + len(keys), STATE, *keys, permit, session.database))
            backend = self._reads.backend(origin.address, session.database)
            backend.call(request, partial(self._deleted, session, slot, target, error, keys))

        self._router.shared(session, target).call(command((b"EXISTS", *keys)), looked)

    def _deleted(self, session: Session, slot: int, target: str, error: bytes, keys: list[bytes], reply: bytes) -> None:
        if not reply.startswith(b"*"):
            self._leave(slot)
            # Nothing was run where the script refused; a connection that was lost says so itself.
            session.fail(error if reply.startswith((b"-UNSETTLED", b"-CLAIMED")) else reply)
            return
        reader = hiredis.Reader()
        reader.feed(reply)
        there: list[int] = reader.gets()
        gone = [key for key, here in zip(keys, there, strict=True) if not here]
        if not gone:
            self._finish(session, slot, len(keys), b":0\r\n")
            return
        # absent-first: they are not at the source, as it has just said.
        request = command((b"DEL", *gone))
        self._router.shared(session, target).call(request, partial(self._finish, session, slot, len(keys) - len(gone)))

    def _finish(self, session: Session, slot: int, deleted: int, reply: bytes) -> None:
        self._leave(slot)
        if reply.startswith(b":"):
            session.complete(b":%d\r\n" % (deleted + int(reply[1:])))
        else:
            session.fail(reply)
