"""A follower tells the leader of itself, so that operators see it there, and looks whether the two agree.

A topom whose token the leader refuses, or whose URL belongs to another topom, is of no use, and would stop all others
once it leads. So it says so before that: in its log, by not being ready, and in the answer to each request.
"""

import asyncio
import math

import httpx
import structlog

from slots import bearer
from slots.version import program_version
from topom.errors import NotLeading
from topom.periodic import Look, Loop
from topom.reasons import Kind, Reason
from topom.store import Leader
from topom.term.certificates import REMEDIES
from topom.term.node import Node, Unfit
from topom.term.peers import FAILURES
from topom.term.tokens import Tokens

log = structlog.get_logger(__name__)

SECONDS = 1.0
"""Seconds between two announcements; also how long one may take."""
HEARD_SECONDS = 3.0
"""How long an answer of the leader counts: one that is late once is no news."""
LOOK_SECONDS = 10.0
"""Seconds between two looks which topom answers at the own URL."""
INSTANCE = "slotferry-topom"
"""Header of the answer to ``/livez``: the instance of the topom that answers."""


class Announcing(Loop):
    """The announcements of one topom.

    Args:
        tokens: the tokens that this topom accepts. While its own is changed, the leader may know only another.
    """

    name = "announcing"

    def __init__(self, node: Node, tokens: Tokens) -> None:
        super().__init__()
        self._node = node
        self._tokens = tokens
        self._former: Leader | None = None
        self._heard_at = -math.inf  # when this leader last answered
        self._look_at = -math.inf

    async def look(self) -> Look:
        """Tell the leader, and look from time to time whether another topom answers at this one's URL."""
        node, leader = self._node, self._node.leader
        now = asyncio.get_running_loop().time()
        if node.shared and now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            _note(node, "misplaced", await _look_at_own_url(node))
        if node.leading is not None or leader is None:
            _note(node, "refused", None)
            _note(node, "unheard", None)
            self._former = leader
            return Look(str(node.unfit.get("misplaced") or ""), SECONDS)
        if self._former is None or self._former.term != leader.term:
            _note(node, "refused", None)
            self._heard_at = -math.inf
        self._former = leader
        try:
            _note(node, "refused", await _say(node, leader, list(self._tokens.operators)))
        except NotLeading as error:
            return Look(str(error), SECONDS)
        except FAILURES as error:
            log.debug("not_announced", leader=leader.url, reason=repr(error))
            why = REMEDIES.why(error)
            says = f"the leader at {leader.url} does not answer this topom{why and ': '}{why}"
            if asyncio.get_running_loop().time() - self._heard_at >= HEARD_SECONDS:
                to_do = "" if why else "look at that topom; if it is gone, another is elected once its lease is over"
                _note(node, "unheard", Reason(Kind.STORE, says, to_do=to_do))
            return Look(says, SECONDS)
        self._heard_at = asyncio.get_running_loop().time()
        _note(node, "unheard", None)
        unfit = node.unfit.get("misplaced") or node.unfit.get("refused")
        return Look(f"the leader at {leader.url} knows this topom" if unfit is None else str(unfit), SECONDS)


async def _say(node: Node, leader: Leader, tokens: list[str]) -> Reason | None:
    """Tell the leader of this topom; gives why the leader refuses, or None."""
    if leader.url == node.url:
        return Reason(
            Kind.OPERATOR,
            f"the topom that leads, {leader.instance[:8]}, says that it is at {leader.url}, and so does this one, "
            f"{node.instance[:8]}",
            to_do="give each topom a url of its own; if this one was just started anew, wait for the end of that lease",
        )
    said = {
        "instance": node.instance,
        "url": node.url,
        "version": program_version(),
        "epoch": node.serving.ledger.table.epoch,
    }
    for token in tokens:
        answer = await node.http.post(
            f"{leader.url}/api/v1/topoms", json=said, headers=bearer.header(token), timeout=SECONDS
        )
        if answer.status_code not in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            if answer.is_server_error:
                answer.raise_for_status()
            return None
    return Reason(
        Kind.OPERATOR,
        f"the topom that leads, at {leader.url}, does not accept this topom's token, so nothing can be passed on to it",
        to_do="give all topoms the same token and tokens",
    )


async def _look_at_own_url(node: Node) -> Reason | None:
    """The reason if another topom answers at the URL that this one gives as its own; None if none does."""
    try:
        answer = await node.http.get(f"{node.url}/livez", timeout=SECONDS)
    except FAILURES as error:
        log.debug("own_url_not_reached", url=node.url, reason=repr(error))
        return node.unfit.get("misplaced")
    found = answer.headers.get(INSTANCE, node.instance)
    if found == node.instance:
        return None
    return Reason(
        Kind.OPERATOR,
        f"at {node.url}, which this topom, {node.instance[:8]}, gives as its own url, another one answers, {found[:8]}",
        to_do="set url to where this one is reached",
    )


def _note(node: Node, what: Unfit, reason: Reason | None) -> None:
    before = node.unfit.get(what)
    if reason is None:
        node.unfit.over(what)
        if before is not None:
            log.info("topom_refused_no_more" if what == "refused" else "topom_misplaced_no_more")
        return
    node.unfit.waits(what, reason)
    if not reason.says(before):
        log.error("topom_refused" if what == "refused" else "topom_misplaced", kind=reason.kind, reason=str(reason))
