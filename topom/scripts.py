"""The scripts of all proxies: told here by each as its clients load or run them, and given to every other.

So a proxy that was restarted, or joined later, can load a script at a server that has lost it. Scripts are stored
before any proxy is given them, and confirmed to whoever told them once they are stored; they have nothing to do with
the slot table and its epoch.

SCRIPT FLUSH forgets them all and begins another *generation*. A script told as one of an earlier generation is passed
over, so that **what was loaded before a flush is not brought back after it**, however late it comes. A flush is over
once every connected proxy has said that it has forgotten, too.

**bounded**: in number and bytes, by two settings (scripts that were merely run go first, then the oldest); each
proxy has one batch and one flush under way; a flush waits for proxies for :data:`FLUSH_SECONDS` at most.
"""

import asyncio
import base64
import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from slots.backoff import Backoff
from slots.scripts import LOADED, KnownScripts, digest
from topom.frames import FlushScripts, Scripts, ScriptsKnown
from topom.store import Store, StoreConflict, StoredScript, StoreError

log = structlog.get_logger(__name__)

FLUSH_SECONDS = 0.8
"""How long a flush waits for proxies to forget; one that is late forgets when it hears of it."""
RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 0.2, 5.0
"""Until what could not be stored is tried again."""
FRAME_BYTES = 256 * 1024
"""Of the scripts in one frame to a proxy, unless a single one is larger: tables are not to wait behind them."""

LEFT_KEPT = 16
"""Batches of proxies that have gone which may wait to be stored."""
FRAMES_KEPT = 8
"""Frames that are kept for the next proxy that wants the same."""


class Peer(Protocol):
    """A proxy's connection, as the scripts see it. Neither method blocks or raises."""

    scripts_sent: int
    """The sequence of the newest script of this generation that it was given."""

    def wake(self) -> None:
        """There are more scripts to send."""

    def say(self, frame: Mapping[str, object]) -> None:
        """Send a small frame, before any script that it was not given yet."""


@dataclass(slots=True)
class _Round:
    """A flush that proxies were told of: who asked for it, and who has still to answer."""

    asker: Peer
    asked: int
    waiting: set[Peer]
    timer: asyncio.TimerHandle


class SharedScripts:
    """What topom knows of scripts. :meth:`start` before anything else; :meth:`run` stores what is told.

    Args:
        store: keeps them.
        most: how many scripts.
        most_bytes: how many bytes of them together.
    """

    def __init__(self, store: Store, most: int, most_bytes: int) -> None:
        self._store = store
        self._known = KnownScripts(most, most_bytes)
        self._sequences: dict[bytes, int] = {}  # by ascending sequence
        self.sequence = 0
        """Of the newest script of this generation."""
        self.generation = 0
        """How often all scripts were forgotten."""
        self._peers: set[Peer] = set()
        self._told: deque[tuple[Peer, Scripts | FlushScripts]] = deque()
        self._news = asyncio.Event()
        self._rounds: dict[int, _Round] = {}
        self._last_round = 0
        self._frames: dict[int, tuple[int, str]] = {}  # by the sequence that they begin after

    def __len__(self) -> int:
        return len(self._known)

    async def start(self) -> None:
        """Read the store. Raises :class:`~topom.store.StoreError`."""
        stored = await self._store.read_scripts()
        self.generation = stored.generation
        for script in stored.scripts:
            name = self._known.remember(script.body, script.loaded)
            self._sequences[name] = self.sequence = script.sequence
        self._sequences = {name: at for name, at in self._sequences.items() if name in self._known}

    # -- proxies -------------------------------------------------------------------------------------------

    def join(self, peer: Peer, known: ScriptsKnown) -> None:
        """A proxy has connected, and says up to where it was given scripts. One of another generation forgets."""
        same = known.generation == self.generation and known.sequence <= self.sequence
        peer.scripts_sent = known.sequence if same else 0
        self._peers.add(peer)

    def leave(self, peer: Peer) -> None:
        """A proxy's connection has ended."""
        self._peers.discard(peer)
        # What it has told counts although it has gone. bounded: it tells again should it come back.
        left = [entry for entry in self._told if entry[0] not in self._peers and isinstance(entry[1], Scripts)]
        for entry in left[:-LEFT_KEPT]:
            self._told.remove(entry)
        for number in list(self._rounds):
            self.forgotten(peer, number)

    def tell(self, peer: Peer, frame: Scripts | FlushScripts) -> None:
        """Take scripts, or a flush, from a proxy; they are answered once they are stored."""
        if peer not in self._peers:
            return
        # bounded: a proxy waits for the answer before it sends the next; one that does not has its last word heard.
        self._told = deque(entry for entry in self._told if entry[0] is not peer or type(entry[1]) is not type(frame))
        self._told.append((peer, frame))
        self._news.set()

    def forgotten(self, peer: Peer, number: int) -> None:
        """A proxy has forgotten its scripts, or is gone."""
        flush = self._rounds.get(number)
        if flush is not None:
            flush.waiting.discard(peer)
            if not flush.waiting:
                self._end(number)

    def frame(self, sent: int) -> tuple[int, str] | None:
        """The frame with the scripts that follow ``sent``, and the sequence it ends with; None if there are none."""
        if sent >= self.sequence:
            return None
        frame = self._frames.get(sent)
        if frame is None:
            if len(self._frames) >= FRAMES_KEPT:
                self._frames.clear()
            frame = self._frames[sent] = self._make_frame(sent)
        return frame

    def _make_frame(self, sent: int) -> tuple[int, str]:
        scripts: list[dict[str, Any]] = []
        size, end = 0, self.sequence
        for name, sequence in self._sequences.items():
            body = self._known.peek(name) if sequence > sent else None
            if body is None:
                continue
            if scripts and size + len(body) > FRAME_BYTES:
                break
            scripts.append({"body": base64.b64encode(body).decode(), "loaded": self._known.is_loaded(name)})
            size += len(body)
            end = sequence
        else:
            end = self.sequence
        content = {"type": "scripts", "generation": self.generation, "sequence": end, "scripts": scripts}
        return end, json.dumps(content, separators=(",", ":"))

    # -- storing -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Store what is told, in its order, until cancelled. Raises :class:`~topom.store.StoreConflict`."""
        backoff = Backoff(RETRY_SECONDS_MIN, RETRY_SECONDS_MAX)
        while True:
            await self._news.wait()
            self._news.clear()
            while self._told:
                peer, frame = self._told[0]
                try:
                    await (self._forget(peer, frame) if isinstance(frame, FlushScripts) else self._add(peer, frame))
                except StoreConflict:
                    raise
                except StoreError as error:
                    log.error("scripts_not_stored", reason=str(error))
                    await asyncio.sleep(backoff.next())
                    continue
                backoff.reset()
                if self._told and self._told[0][1] is frame:
                    self._told.popleft()

    async def _add(self, peer: Peer, frame: Scripts) -> None:
        known = self._known.copy()
        put: dict[bytes, StoredScript] = {}
        sequence = self.sequence
        # What was told before a flush that has come first is not brought back.
        for script in frame.scripts if frame.generation == self.generation else ():
            body = script.body
            name = digest(body)
            before = known.level(name)
            known.remember(body, script.loaded)
            if known.level(name) > before:
                sequence += 1
                put[name] = StoredScript(name.decode(), sequence, known.level(name) == LOADED, body)
        if put:
            put = {name: script for name, script in put.items() if name in known}
            dropped = [name for name in self._known if name not in known]
            await self._store.write_scripts(self.generation, list(put.values()), [name.decode() for name in dropped])
            for name in (*put, *dropped):
                self._sequences.pop(name, None)
            self._sequences |= {name: script.sequence for name, script in put.items()}
            self.sequence = sequence
        self._known = known
        if put:
            self._frames.clear()
            for one in self._peers:
                one.wake()
        peer.say({"type": "scripts_told", "number": frame.number})

    async def _forget(self, peer: Peer, frame: FlushScripts) -> None:
        if frame.bodies:
            await self._store.forget_scripts(self.generation)
            self.generation += 1
            self._known.forget()
            self._sequences.clear()
            self._frames.clear()
            self.sequence = 0
            log.info("scripts_forgotten", generation=self.generation)
        self._last_round += 1
        content = {"type": "scripts_flushed", "generation": self.generation, "bodies": frame.bodies}
        for one in self._peers:
            if frame.bodies:
                one.scripts_sent = 0
            if one is not peer:
                one.say({**content, "number": self._last_round})
        peer.say({**content, "own": frame.number})
        timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self._end, self._last_round)
        self._rounds[self._last_round] = _Round(peer, frame.number, self._peers - {peer}, timer)
        if not self._rounds[self._last_round].waiting:
            self._end(self._last_round)

    def _end(self, number: int) -> None:
        flush = self._rounds.pop(number, None)
        if flush is not None:
            flush.timer.cancel()
            flush.asker.say({"type": "scripts_flush_done", "number": flush.asked})
