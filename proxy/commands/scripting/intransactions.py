"""Prepares scripts and functions that run within a transaction."""

from proxy.commands.scripting import unnamed
from proxy.commands.scripting.functions import FunctionCommands
from proxy.commands.scripting.scripts import ScriptCommands
from proxy.engine.session import Session
from slots.commands import Code, CodeRequests


class CodeInTransactions:
    """The families of scripts and functions, as the transactions use them."""

    def __init__(self, scripts: ScriptCommands, functions: FunctionCommands) -> None:
        self._scripts = scripts
        self._functions = functions

    async def look_for(self, requests: CodeRequests) -> None:
        """Find the scripts that ``requests`` name, and have every server ready for the functions."""
        await self._scripts.look_for(requests)
        await self._functions.look_for(requests)

    def refusal(self, requests: CodeRequests) -> bytes | None:
        """Why ``requests`` cannot be run while their slot moves; None if they can."""
        if any(code is Code.FUNCTION for code, _ in requests):
            return unnamed.FUNCTION_REFUSED
        return self._scripts.refusal(requests)

    def preload(self, session: Session, address: str, requests: CodeRequests) -> tuple[bytes, int]:
        """The requests to send to a server before ``requests``, and how many replies they have."""
        return self._scripts.preload(session, address, requests)
