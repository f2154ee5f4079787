"""The scripts that a worker has seen (:mod:`proxy.commands.scripting.knownscripts`), and which servers are known to
have them.

The knowledge about a server holds as long as the connection by which it was learned
(:mod:`proxy.servers.whileconnected`). What a request surely finds is told to the engine (:mod:`proxy.engine.loaded`),
which then does not ask here any more. Each time that a quarter of the room has been filled, the engine forgets all of
it. So each script that is still used comes here once more, counts as used, and does not go before others do.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection
from itertools import islice

from proxy.commands.scripting.knownscripts import KnownScripts
from proxy.engine.backend import Backend
from proxy.engine.loaded import MOST_SCRIPTS, LoadedCode
from proxy.servers.whileconnected import WhileConnected


class Scripts(KnownScripts):
    """One worker's memory of scripts.

    Args:
        loaded: the engine's knowledge.
        index_of: gives the engine's number of a server.
    """

    def __init__(self, loaded: LoadedCode, index_of: Callable[[str], int]) -> None:
        super().__init__()
        self._engine = loaded
        self._index_of = index_of
        self._at: dict[str, OrderedDict[bytes, WhileConnected]] = {}
        self.flushes = 0
        """Grows when scripts are forgotten; an answer to an earlier question to a server then says nothing."""

    def forget(self) -> None:
        """Forget every script, and which servers have them."""
        super().forget()
        self.forget_servers()

    def aged(self) -> None:
        """The engine forgets all scripts."""
        self._engine.forget_all_scripts()

    def dropped(self) -> None:
        """The engine forgets the texts. What servers have stays there."""
        self._engine.forget_texts()

    def is_at(self, name: bytes, address: str) -> bool:
        """Whether a server is known to have a script loaded; if it is, requests for it need not come here any more."""
        there = self._at.get(address)
        standing = there.get(name) if there is not None else None
        if standing is None or not standing.holds:
            return False
        self._engine.note_script(self._index_of(address), name)
        return True

    def is_remembered(self, body: bytes) -> None:
        """A script that a client runs is remembered; requests with this text need not come here any more."""
        self._engine.note_text(body)

    def note_at(self, name: bytes, backend: Backend) -> None:
        """A server has a script: it has just said so over ``backend``."""
        there = self._at.setdefault(backend.address, OrderedDict())
        there[name] = WhileConnected(backend)
        there.move_to_end(name)
        while len(there) > MOST_SCRIPTS:
            there.popitem(last=False)

    def to_check(self, most: int) -> dict[Backend, list[bytes]]:
        """For each server, a connection to it and some of its scripts: others at each call."""
        found: dict[Backend, list[bytes]] = {}
        for there in self._at.values():
            names: list[bytes] = []
            backend: Backend | None = None
            for name, standing in list(islice(there.items(), most)):
                if not standing.holds:
                    del there[name]
                    continue
                there.move_to_end(name)
                names.append(name)
                backend = standing.backend
            if backend is not None:
                found[backend] = names
        return found

    def keep_servers(self, addresses: Collection[str]) -> None:
        """Forget the scripts of every server that is not in ``addresses``."""
        for address in self._at.keys() - set(addresses):
            self.forget_server(address)

    def forget_server(self, address: str) -> None:
        """A server has lost its scripts."""
        self._at.pop(address, None)
        self._engine.forget_scripts(self._index_of(address))

    def forget_servers(self) -> None:
        """Any server may have lost its scripts."""
        self.flushes += 1
        self._at.clear()
        self._engine.forget_all_scripts()
