"""Scripts: a client gets no NOSCRIPT for a script that was loaded everywhere, or that this proxy has seen.

EVAL and EVALSHA go to the server of their keys; without keys, to any server. The worker remembers the scripts it sees
(:mod:`proxy.commands.scripting.seenscripts`). If a server is not known to have the script of an EVALSHA, the script is
loaded there first, over the same connection. The server runs a connection's requests in their order, so no request
waits for that. Once the server has confirmed the script, EVALSHA is sent unchanged. If this worker has not seen a
script, it asks the other workers when the script is first needed, then the server, which may have it from another
proxy. SCRIPT LOAD loads the script at every master.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from proxy.commands import replies
from proxy.commands.family import Answer, Decided, Family, Handler, to_its_end
from proxy.commands.scripting import unnamed
from proxy.commands.scripting.killing import ask_busy, verdict
from proxy.commands.scripting.knownscripts import LOADED, RUN, digest
from proxy.commands.scripting.scriptcalls import NO_SCRIPT
from proxy.commands.scripting.scriptkeeping import ScriptKeeping
from proxy.commands.scripting.seenscripts import Scripts
from proxy.commands.scripting.unnamed import KeepingToKeys
from proxy.commands.services import Services
from proxy.engine.backend import Backend, command
from proxy.engine.outcomes import ANY_SERVER, Outcome, Unit, clear, settled
from proxy.engine.refusals import NO_SERVER
from proxy.engine.session import Session
from proxy.servers.everywhere import ask, ask_each, first_error
from slots import commands
from slots.commands import Code, CodeRequests
from slots.messages.questions import Asked, Script, ScriptLoaded, ScriptsFlushed, ScriptsKnown
from slots.table import SlotTable

DIGEST_LENGTH = 40


class ScriptCommands(Family):
    """The family's handlers.

    Args:
        services: the worker's parts.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._router = services.router
        self.scripts = Scripts(services.router.loaded, services.router.server_index)
        # Loads under way: a request that follows on the same connection finds the script.
        self._loading: set[tuple[Backend, bytes, int]] = set()
        self._keeping = ScriptKeeping(self.scripts, services.router, services.every_master)
        self._keeping_to_keys = KeepingToKeys()
        self._row = commands.table()["EVALSHA"]

    def handlers(self) -> dict[str, Handler]:
        """Handlers by the command's name."""
        return {
            "EVAL": self.eval,
            "EVAL_RO": self.eval,
            "EVALSHA": self.evalsha,
            "EVALSHA_RO": self.evalsha,
            "SCRIPT|LOAD": self.script_load,
            "SCRIPT|EXISTS": self.script_exists,
            "SCRIPT|FLUSH": self.script_flush,
            "SCRIPT|KILL": self.script_kill,
        }

    def answers(self) -> dict[type[Asked], Answer]:
        """Those about scripts."""
        return {
            Script: self._answer_script,
            ScriptLoaded: self._answer_loaded,
            ScriptsKnown: self._answer_known,
            ScriptsFlushed: self._answer_flushed,
        }

    def table_applied(self, table: SlotTable) -> None:
        """A server that comes back as a master may be another one."""
        self.scripts.keep_servers(self._services.every_master())
        self._keeping.keep_servers()

    def tick(self) -> None:
        """Check the servers from time to time."""
        self._keeping.tick()

    async def close(self) -> None:
        """The worker ends."""
        await self._keeping.close()

    # -- running -------------------------------------------------------------------------------------------

    def eval(self, session: Session, argv: list[bytes]) -> Decided:
        """EVAL and EVAL_RO: the server loads the script by running it, but may drop it again at any time."""
        keys = commands.keys_of(self._row, argv)
        if self._has_several_slots(session, keys):
            # If it is refused for its keys, a server would not know it either.
            return keys
        name = self._remember(argv[1])
        if name in self.scripts:
            self.scripts.is_remembered(argv[1])

        def refused() -> bytes | None:
            moves = unnamed.moves(self._router, session.database, keys)
            return self._keeping_to_keys.refusal(name, argv[1]) if moves else None

        return keys or ANY_SERVER if refused() is None else unnamed.run(argv, keys, refused)

    def _remember(self, body: bytes) -> bytes:
        """A client runs a script; give its SHA1."""
        name = digest(body)
        if self.scripts.body(name) is None:
            self.scripts.remember(body)
        return name

    def refusal(self, requests: CodeRequests) -> bytes | None:
        """Why scripts cannot be run while their slot moves; None if they can."""
        for code, argv in requests:
            match code:
                case Code.TEXT:
                    name, body = digest(argv[1]), argv[1]
                case Code.DIGEST:
                    name = argv[1].lower()
                    found = self.scripts.body(name)
                    if found is None:
                        return NO_SCRIPT
                    body = found
                case _:
                    continue
            refused = self._keeping_to_keys.refusal(name, body)
            if refused is not None:
                return refused
        return None

    def _has_several_slots(self, session: Session, keys: list[bytes]) -> bool:
        """Whether keys are in several slots, which is refused before anything else is checked."""
        slot_of_key = self._router.slot_of_key
        return len(keys) > 1 and len({slot_of_key(session.database, key) for key in keys}) > 1

    async def evalsha(self, session: Session, argv: list[bytes]) -> Outcome:
        """EVALSHA and EVALSHA_RO."""
        try:
            keys = commands.keys_of(self._row, argv)
        except commands.KeysError:
            if len(argv[1]) != DIGEST_LENGTH:
                # Redis looks no further.
                return NO_SCRIPT
            raise
        if self._has_several_slots(session, keys):
            return keys
        if len(argv[1]) != DIGEST_LENGTH:
            return NO_SCRIPT
        name = argv[1].lower()
        while True:
            if (
                unnamed.moves(self._router, session.database, keys)
                and name not in self.scripts
                and not await self._ask_proxy(name)
            ):
                # absent-first: a script that only the servers know cannot be checked; the client then gives its text.
                return NO_SCRIPT
            await settled(lambda: self._refused(session, name, keys))
            slot, address = await clear(keys)
            body = self.scripts.body(name)
            if unnamed.moves(self._router, session.database, keys) and (
                body is None or self._refused(session, name, keys) is not None
            ):
                # It did not move before.
                continue
            there = self._is_at(session, name, address)
            if body is None and not there:
                problem = await self._look_for(session, name, address)
                if problem is not None:
                    return problem
                continue
            if body is not None and not there:
                self._load(self._router.shared(session, address), name, body)
            return Unit(slot, address, command(tuple(argv)))

    def _refused(self, session: Session, name: bytes, keys: list[bytes]) -> bytes | None:
        """Why a script that is remembered cannot be run while its slot moves; None if it can."""
        body = self.scripts.body(name)
        if body is None or not unnamed.moves(self._router, session.database, keys):
            return None
        return self._keeping_to_keys.refusal(name, body)

    def _is_at(self, session: Session, name: bytes, address: str) -> bool:
        """Whether a session's next request finds a script at a server."""
        # run-id: a connection that is not up yet may lead to another process.
        return self.scripts.is_at(name, address) and self._router.shared(session, address).is_ready

    def _load(self, backend: Backend, name: bytes, body: bytes) -> None:
        load = (backend, name, self.scripts.flushes)
        if load not in self._loading:
            self._loading.add(load)
            backend.call(command(("SCRIPT", "LOAD", body)), partial(self._loaded, *load))

    def _loaded(self, backend: Backend, name: bytes, flushes: int, reply: bytes) -> None:
        self._loading.discard((backend, name, flushes))
        if reply == replies.bulk(name) and flushes == self.scripts.flushes:
            self.scripts.note_at(name, backend)

    async def _look_for(self, session: Session, name: bytes, address: str) -> bytes | None:
        """Ask the proxy for a script, then the server. None once it is there or known, else the error."""
        if await self._ask_proxy(name):
            return None
        flushes = self.scripts.flushes
        exists = replies.array([replies.integer(1)])

        def heard(backend: Backend, reply: bytes) -> None:
            if reply == exists and flushes == self.scripts.flushes:
                self.scripts.note_at(name, backend)

        # It was loaded past this proxy.
        backend = self._router.shared(session, address)
        reply = await ask(backend, command(("SCRIPT", "EXISTS", name)), heard)
        if reply == exists:
            return None
        return reply if reply.startswith(b"-") else NO_SCRIPT

    async def _ask_proxy(self, name: bytes) -> bool:
        """Remember a script that another worker of this proxy remembers; false if none does."""
        flushes = self.scripts.flushes
        found = await self._services.ask_all(Script(name=name.decode("latin-1")))
        # A script that was forgotten meanwhile stays forgotten.
        if flushes == self.scripts.flushes:
            for answer in filter(None, found):
                self.scripts.remember(answer["body"].encode("latin-1"), answer["loaded"])
        return name in self.scripts

    def preload(self, session: Session, address: str, requests: CodeRequests) -> tuple[bytes, int]:
        """The requests to send to a server before ``requests``, and how many replies they have.

        It is for requests that go to one server in one piece, over any connection.
        """
        found: dict[bytes, bytes] = {}
        for code, argv in requests:
            match code:
                case Code.TEXT:
                    self._remember(argv[1])
                case Code.LOAD:
                    # It goes to one server only, and it is not known yet whether it can be loaded.
                    self._remember(argv[2])
                case Code.DIGEST:
                    name = argv[1].lower()
                    body = self.scripts.body(name)
                    if body is not None and not self._is_at(session, name, address):
                        found[name] = body
        return b"".join(command(("SCRIPT", "LOAD", body)) for body in found.values()), len(found)

    async def look_for(self, requests: CodeRequests) -> None:
        """Ask the proxy for the scripts of ``requests`` that this worker has not seen."""
        for name in {argv[1].lower() for code, argv in requests if code is Code.DIGEST}:
            if len(name) == DIGEST_LENGTH and name not in self.scripts:
                await self._ask_proxy(name)

    # -- SCRIPT --------------------------------------------------------------------------------------------

    def _shared(self, session: Session, addresses: Sequence[str]) -> list[Backend]:
        """The session's shared connections to servers: its own requests stay in their order."""
        return [self._router.shared(session, address) for address in addresses]

    async def script_load(self, session: Session, argv: list[bytes]) -> Outcome:
        """SCRIPT LOAD body: at every master that can be reached. The others get it when they need it."""
        return await to_its_end(self._router, self._load_everywhere(session, argv[2]))

    async def _load_everywhere(self, session: Session, body: bytes) -> bytes:
        flushes = self.scripts.flushes
        name = digest(body)
        done = replies.bulk(name)
        is_first = not self.scripts.loaded()

        def heard(backend: Backend, reply: bytes) -> None:
            if reply == done and flushes == self.scripts.flushes:
                self.scripts.note_at(name, backend)
                if is_first:
                    # So what another proxy flushes right after is not loaded once more.
                    self._keeping.complete(backend)

        shared = self._shared(session, self._services.every_master())
        said = await ask_each(shared, command(("SCRIPT", "LOAD", body)), heard)
        if done not in said.values():
            return first_error(said) or NO_SERVER
        for address, reply in said.items():
            if reply != done:
                self._keeping.incomplete(address)
        if self.scripts.remember(body, loaded=True) in self.scripts:
            # Before the client's reply: its next request may come to another worker.
            await self._services.ask_all(ScriptLoaded(body=body.decode("latin-1")))
        return done

    async def script_exists(self, session: Session, argv: list[bytes]) -> Outcome:
        """SCRIPT EXISTS sha1 [sha1 ...]: what EVALSHA would find at every master, if necessary by loading it first.

        A user whose scripts are looked at finds only those of which this worker has the text.
        """
        state = session.state
        looked_at = state is not None and state.user is not None and state.user.proves_scripts
        names = [name.lower().decode("latin-1") for name in argv[2:]]
        question = ScriptsKnown(names=names)
        known = [self._answer_known(question), *await self._services.ask_all(question)]
        said = await ask_each(self._shared(session, self._services.masters()), command(tuple(argv)))
        there = [_numbers(reply) for reply in said.values() if not reply.startswith(b"-")]
        if not there:
            return first_error(said) or NO_SERVER
        found = []
        for index in range(len(names)):
            present = [numbers[index] for numbers in there]
            # A script that was only run may not be loadable: then no server has it.
            level = max((answer[index] for answer in known), default=0)
            # While slots move, EVALSHA needs the text. A client that asks here loads the script then.
            readable = bool(level) or not unnamed.moves(self._router, session.database, ())
            everywhere = len(there) == len(said) and all(present) and readable
            loadable = level == LOADED or (level == RUN and any(present))
            here = not looked_at or names[index].encode("latin-1") in self.scripts
            found.append(replies.integer(int(here and (everywhere or loadable))))
        return replies.array(found)

    async def script_flush(self, session: Session, argv: list[bytes]) -> Outcome:
        """SCRIPT FLUSH [ASYNC | SYNC]: every worker of this proxy forgets the scripts, then every master does."""
        if len(argv) > 3 or (len(argv) == 3 and argv[2].upper() not in (b"SYNC", b"ASYNC")):
            return b"-ERR SCRIPT FLUSH only support SYNC|ASYNC option\r\n"
        return await to_its_end(self._router, self._flush(session, argv))

    async def _flush(self, session: Session, argv: list[bytes]) -> bytes:
        self.scripts.forget()
        await self._services.ask_all(ScriptsFlushed(bodies=True))
        said = await ask_each(self._shared(session, self._services.every_master()), command(tuple(argv)))
        # A script loaded meanwhile may have been flushed again. The workers still know its text.
        self.scripts.forget_servers()
        await self._services.ask_all(ScriptsFlushed(bodies=False))
        return (first_error(said) or replies.OK) if said else NO_SERVER

    async def script_kill(self, session: Session, argv: list[bytes]) -> Outcome:
        """SCRIPT KILL, at every master."""
        services = self._services
        addresses = services.masters()
        seconds = services.settings.backend_reply_seconds
        request = [command(tuple(argv))]
        said = await asyncio.gather(*(ask_busy(address, services.options, request, seconds) for address in addresses))
        return verdict(dict(zip(addresses, said, strict=True))) if said else NO_SERVER

    # -- other workers' questions --------------------------------------------------------------------------

    def _answer_script(self, question: Script) -> Any:
        name = question.name.encode("latin-1")
        body = self.scripts.body(name)
        return None if body is None else {"body": body.decode("latin-1"), "loaded": self.scripts.is_loaded(name)}

    def _answer_loaded(self, question: ScriptLoaded) -> Any:
        self.scripts.remember(question.body.encode("latin-1"), loaded=True)
        return None

    def _answer_known(self, question: ScriptsKnown) -> Any:
        names = [name.encode("latin-1") for name in question.names]
        return [self.scripts.level(name) for name in names]

    def _answer_flushed(self, question: ScriptsFlushed) -> Any:
        if question.bodies:
            self.scripts.forget()
        else:
            self.scripts.forget_servers()
        return None


def _numbers(reply: bytes) -> list[int]:
    """The numbers of an array of numbers."""
    return [int(line[1:]) for line in reply.split(b"\r\n")[1:-1]]
