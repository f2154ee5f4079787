"""The scripts of all proxies, as one proxy's supervisor keeps them for its workers, in step with topom.

A worker tells what its clients load or run, and asks for what it has not seen. From here it is told to topom, which
gives it to the other proxies, and what they tell comes from there. Nobody waits for topom: what it has not confirmed
is told again when it is back, as far as there is room to remember it.

SCRIPT FLUSH is counted: what a worker tells of before it has heard of a flush is passed over, here by the proxy's own
count, at topom by the *generation* that it gives. So **what was loaded before a flush is not brought back after it**.
While topom is away, others do not hear of a flush. Once they do, they forget all that they have been told by then.

**bounded**: in number and bytes as the workers' memory is; one batch and one flush are under way to topom at a time;
a flush waits for other proxies for :data:`FLUSH_SECONDS` at most.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from proxy.asking import Asked
from proxy.channel import Message
from proxy.settings import ProxySettings
from slots.scripts import KnownScripts, digest

log = structlog.get_logger()

FLUSH_SECONDS = 1.0
CATCH_UP_SECONDS = 1.0
"""How long a worker's question waits while scripts are still on their way to a proxy that was just started."""
BATCH_BYTES = 128 * 1024
"""Of the scripts in one frame to topom: none is begun beyond them."""
BATCH_SCRIPTS = 1000

Send = Callable[[Message], None]
AskWorkers = Callable[[Message], Awaitable[list[Any]]]
"""Asks every worker; what it says is sent to each even when nobody waits any more."""


class SharedScripts:
    """What the proxy knows of scripts.

    Args:
        settings: of the proxy; how much is remembered.
        send: sends a frame to topom, or nothing while there is no stream.
        ask_workers: asks all workers.
    """

    def __init__(self, settings: ProxySettings, send: Send, ask_workers: AskWorkers) -> None:
        self._most = settings.scripts_remembered
        self._known = KnownScripts(self._most, settings.scripts_remembered_bytes)
        self._send = send
        self._ask_workers = ask_workers
        self.flushes = 0
        """How often scripts were forgotten here; workers say it with what they tell."""
        self._generation: int | None = None  # None before topom was ever met
        self._sequence = 0
        self._wanted = 0  # the sequence that topom was at when the proxy registered
        self._caught_up = asyncio.Event()
        self._shared = False  # whether topom, as far as it is connected, knows of scripts
        self._untold: dict[bytes, None] = {}
        self._telling: tuple[int, list[bytes]] | None = None  # what is under way, by the number of its frame
        self._numbers = 0  # of frames to topom
        # Flushes: the newest, the one under way, and whether topom has yet to begin another generation for us.
        self._newest_flush = 0
        self._flush_under_way = 0
        self._bodies_untold = False
        self._bodies_under_way = False
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._known)

    # -- what workers say ----------------------------------------------------------------------------------

    def asked(self, asker: Asked, question: Message) -> bool:
        """A worker's question for all; whether it is answered from here instead of by them."""
        match question["what"]:
            case "shared_script" | "shared_scripts_known" if self._is_behind:
                self._keep(self._answer_later(asker, question))
            case "shared_script" | "shared_scripts_known":
                _answer(asker, question, self._look_up(question))
            case "scripts_seen":
                self._told(question, question["scripts"])
                _answer(asker, question, [])
            case "script_loaded":
                self._told(question, [_entry(question["body"], True)])
                return False
            case "scripts_flushed":
                self._begin_flush(asker, question)
            case _:
                return False
        return True

    @property
    def _is_behind(self) -> bool:
        return self._shared and self._sequence < self._wanted

    async def _answer_later(self, asker: Asked, question: Message) -> None:
        self._caught_up.clear()
        try:
            await asyncio.wait_for(self._caught_up.wait(), CATCH_UP_SECONDS)
        except TimeoutError:
            log.warning("scripts_late", sequence=self._sequence, wanted=self._wanted)
        _answer(asker, question, self._look_up(question))

    def _look_up(self, question: Message) -> list[Any]:
        if question["what"] == "shared_scripts_known":
            return [[self._known.level(name.encode("latin-1")) for name in question["names"]]]
        name = question["name"].encode("latin-1")
        body = self._known.body(name)
        return [] if body is None else [_entry(body.decode("latin-1"), self._known.is_loaded(name))]

    def _told(self, question: Message, scripts: list[Message]) -> None:
        if question.get("flushes") != self.flushes:
            return
        for script in scripts:
            body = script["body"].encode("latin-1")
            name = digest(body)
            before = self._known.level(name)
            self._known.remember(body, script["loaded"])
            if self._known.level(name) > before:
                self._untold[name] = None
        # bounded: also while nobody can be told.
        if len(self._untold) > 2 * self._most:
            self._untold = {name: None for name in self._untold if name in self._known}
        self._tell()

    # -- flushing ------------------------------------------------------------------------------------------

    def _begin_flush(self, asker: Asked, question: Message) -> None:
        bodies = bool(question["bodies"])
        if bodies:
            self._forget()
            self._bodies_untold = True
        self._numbers += 1
        self._newest_flush = self._numbers
        self._keep(self._flush(asker, question, bodies, self._newest_flush))

    async def _flush(self, asker: Asked, question: Message, bodies: bool, number: int) -> None:
        done = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._tell_flush()
        try:
            await asyncio.gather(self._flush_workers(bodies), self._wait(done))
        finally:
            self._waiting.pop(number, None)
        _answer(asker, question, [])

    async def _wait(self, done: "asyncio.Future[None]") -> None:
        if self._shared:
            await asyncio.wait([done], timeout=FLUSH_SECONDS)

    async def _flush_workers(self, bodies: bool) -> None:
        await self._ask_workers({"what": "scripts_flushed", "bodies": bodies, "flushes": self.flushes})

    def _tell_flush(self) -> None:
        """Tell topom of the newest flush. Several that come while one is under way are one."""
        if self._shared and not self._flush_under_way and (self._waiting or self._bodies_untold):
            self._flush_under_way = self._newest_flush
            self._bodies_under_way, self._bodies_untold = self._bodies_untold, False
            frame = {"number": self._flush_under_way, "bodies": self._bodies_under_way}
            self._send({"type": "flush_scripts", **frame})

    def _forget(self) -> None:
        self._known.forget()
        self._untold.clear()
        self._telling = None
        self._wanted = 0
        self._caught_up.set()
        self.flushes += 1

    # -- what topom says (proxy.control.Listener) ----------------------------------------------------------

    def registration(self) -> Message:
        """What is said when the proxy registers."""
        return {"scripts": {"generation": self._generation or 0, "sequence": self._sequence}}

    def registered(self, answer: Message) -> None:
        """A new stream stands: tell what was not told."""
        generation = answer.get("scripts_generation")
        self._shared = generation is not None
        if generation is None:
            return
        if generation != self._generation:
            # What was loaded since a flush by this proxy itself is newer than any that topom knows of.
            if self._generation is not None and not self._bodies_untold:
                self._forget()
                self._keep(self._flush_workers(True))
            self._generation = int(generation)
            self._sequence = 0
        self._wanted = 0 if self._bodies_untold else int(answer.get("scripts_sequence", 0))
        self._tell_flush()
        self._tell()

    def lost(self) -> None:
        """There is no stream any more: what was not confirmed on it counts as not told."""
        self._shared = False
        self._caught_up.set()
        if self._telling is not None:
            self._untold = dict.fromkeys(self._telling[1]) | self._untold
            self._telling = None
        self._bodies_untold |= self._bodies_under_way
        self._flush_under_way, self._bodies_under_way = 0, False
        for done in self._waiting.values():
            if not done.done():
                done.set_result(None)

    def heard(self, message: Message) -> bool:
        """A message from topom; whether it was about scripts."""
        match message["type"]:
            case "scripts":
                self._given(message)
            case "scripts_told":
                self._confirmed(int(message["number"]))
            case "scripts_flushed":
                self._flushed(message)
            case "scripts_flush_done":
                self._flush_done(int(message["number"]))
            case _:
                return False
        return True

    def _given(self, message: Message) -> None:
        # What is of a generation that this proxy is about to end, or was, is not taken.
        if message["generation"] != self._generation or self._bodies_untold or self._bodies_under_way:
            return
        for script in message["scripts"]:
            self._known.remember(base64.b64decode(script["body"]), bool(script["loaded"]))
        self._sequence = int(message["sequence"])
        if not self._is_behind:
            self._caught_up.set()

    def _tell(self) -> None:
        """Tell topom some of what it has not been told, unless it has yet to answer."""
        if not self._shared or self._telling is not None or self._bodies_untold or self._bodies_under_way:
            return
        scripts: list[Message] = []
        names: list[bytes] = []
        size = 0
        for name in self._untold:
            body = self._known.peek(name)
            names.append(name)
            if body is None:
                # There was no room to remember it.
                continue
            scripts.append(_entry(base64.b64encode(body).decode(), self._known.is_loaded(name)))
            size += len(body)
            if size > BATCH_BYTES or len(scripts) >= BATCH_SCRIPTS:
                break
        for name in names:
            del self._untold[name]
        if scripts:
            self._numbers += 1
            self._telling = (self._numbers, names)
            self._send({"type": "scripts", "number": self._numbers, "generation": self._generation, "scripts": scripts})

    def _confirmed(self, number: int) -> None:
        if self._telling is not None and self._telling[0] == number:
            self._telling = None
            self._tell()

    def _flushed(self, message: Message) -> None:
        generation = int(message["generation"])
        if generation != self._generation:
            self._generation = generation
            self._sequence = self._wanted = 0
        if "own" in message:
            # Forgotten here already; what was loaded since is of the new generation.
            if message["own"] == self._flush_under_way:
                self._bodies_under_way = False
                self._tell()
            return
        if message["bodies"]:
            self._forget()
        self._keep(self._forget_for(int(message["number"]), bool(message["bodies"])))

    async def _forget_for(self, number: int, bodies: bool) -> None:
        await self._flush_workers(bodies)
        self._send({"type": "scripts_forgotten", "number": number})

    def _flush_done(self, number: int) -> None:
        for waiting, done in self._waiting.items():
            if waiting <= number and not done.done():
                done.set_result(None)
        if number == self._flush_under_way:
            self._flush_under_way = 0
            if self._newest_flush > number:
                self._tell_flush()

    # -- tasks ---------------------------------------------------------------------------------------------

    def _keep(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stop waiting for anything."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _entry(body: str, loaded: bool) -> Message:
    return {"body": body, "loaded": loaded}


def _answer(asker: Asked, question: Message, answers: list[Any]) -> None:
    asker.send({"type": "answer", "id": question["id"], "answers": answers})
