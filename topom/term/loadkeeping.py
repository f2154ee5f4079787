"""A topom that follows keeps the load of the last day by minute, as the one that leads knows it.

So another leader does not begin with an empty day. What comes is checked, and only what is newer than all that is known
is taken (:mod:`topom.load.day`).

**bounded**: one question at a time, and :data:`MOST_BYTES` of an answer.
"""

import asyncio
import time

import httpx
import structlog

from slots import bearer
from topom.load import minutes
from topom.periodic import Look, Loop
from topom.store import Leader
from topom.term.node import Node
from topom.term.peers import FAILURES
from topom.term.tokens import Tokens

log = structlog.get_logger(__name__)

SECONDS = 10.0
"""Between two questions."""
MORE_SECONDS = 0.5
"""Before the next question, if not all had room in an answer."""
ANSWER_SECONDS = 10.0
MOST_BYTES = 4 * 1024 * 1024
"""Of an answer; the largest that a topom writes is half of that."""


class LoadKeeping(Loop):
    """Asks the leader for the minutes that are not known here.

    Args:
        tokens: those that this topom accepts. While its own is changed, the leader may know only another.
    """

    name = "load of the last day"

    def __init__(self, node: Node, tokens: Tokens) -> None:
        super().__init__()
        self._node = node
        self._tokens = tokens

    async def look(self) -> Look:
        """Ask once, if another topom leads."""
        node, leader = self._node, self._node.leader
        if node.leading is not None or leader is None or leader.url == node.url:
            return Look(again=SECONDS)
        day = node.day
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await self._asked(leader, day.newest_at)
            found, more = minutes.heard(answer, time.time(), day.latest)
        except (*FAILURES, TimeoutError) as error:
            log.debug("load_not_kept", leader=leader.url, reason=repr(error))
            return Look(f"the leader at {leader.url} does not tell the load of the last day", SECONDS)
        except minutes.NoMinutes as error:
            return Look(f"the leader at {leader.url} tells no load of the last day that can be used: {error}", SECONDS)
        day.take(found)
        return Look(again=MORE_SECONDS if more else SECONDS)

    async def _asked(self, leader: Leader, after: float) -> bytes:
        """The answer of the leader. Raises NoMinutes, or what httpx raises, if there is none of use."""
        status = 0
        for token in list(self._tokens.operators):
            url = f"{leader.url}/api/v1/load/minutes"
            request = self._node.http.build_request("GET", url, params={"after": after}, headers=bearer.header(token))
            response = await self._node.http.send(request, stream=True)
            try:
                status = response.status_code
                if status == httpx.codes.OK:
                    return await _body(response)
            finally:
                await response.aclose()
            if status not in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
                break
        raise minutes.NoMinutes(f"it answers with status {status}")


async def _body(response: httpx.Response) -> bytes:
    parts, size = [], 0
    async for part in response.aiter_bytes():
        parts.append(part)
        size += len(part)
        if size > MOST_BYTES:
            raise minutes.NoMinutes(f"the answer has more than {MOST_BYTES} bytes")
    return b"".join(parts)
