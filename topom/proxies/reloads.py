"""Has proxies read their settings anew, and gathers what they answer.

topom sends no settings: a proxy reads its own file. All proxies are asked at the same time. **bounded**: each has
:data:`ANSWER_SECONDS`, and :data:`MOST_OPEN` operators may ask at once. A later answer is dropped.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from slots import ranges
from slots.messages.control import Reload, Reloaded
from topom.cluster.events import What, actor
from topom.cluster.ledger import Ledger
from topom.errors import TooMany
from topom.proxies.member import Link, Member
from topom.proxies.members import Members

ANSWER_SECONDS = 6.0
"""Longer than a proxy waits for its workers."""
MOST_OPEN = 8


@dataclass(frozen=True)
class Outcome:
    """What came of a question to one proxy."""

    member: Member
    answer: Reloaded | None
    silent: str = ""
    """Why there is no answer."""


class Reloads:
    """Asks proxies."""

    def __init__(self, ledger: Ledger, members: Members) -> None:
        self._ledger = ledger
        self._members = members
        self._asking = 0
        self._number = 0
        self._open: dict[int, tuple[Link, asyncio.Future[Reloaded]]] = {}

    async def ask(self, proxy_id: int | None) -> list[Outcome]:
        """Ask this proxy, or all if None; gives what came of it, by id.

        Raises:
            ProxyNotFound: there is no such proxy.
            TooMany: others ask now.
        """
        members = self._members.all() if proxy_id is None else [self._members.get(proxy_id)]
        if self._asking >= MOST_OPEN:
            raise TooMany(
                f"{MOST_OPEN} requests to have proxies read their settings are under way; try again in a while"
            )
        self._asking += 1
        try:
            outcomes = list(await asyncio.gather(*map(self._ask, members)))
        finally:
            self._asking -= 1
        self._note(outcomes)
        return outcomes

    def answered(self, link: Link, answer: Reloaded) -> None:
        """A proxy has answered over this link."""
        asked, future = self._open.get(answer.number, (None, None))
        if future is not None and asked is link and not future.done():
            future.set_result(answer)

    async def _ask(self, member: Member) -> Outcome:
        link = member.link
        if link is None:
            return Outcome(member, None, "it is not connected; it reads its settings when it starts, or is sent SIGHUP")
        self._number += 1
        number = self._number
        future: asyncio.Future[Reloaded] = asyncio.get_running_loop().create_future()
        self._open[number] = link, future
        try:
            link.say(Reload(number=number))
            async with asyncio.timeout(ANSWER_SECONDS):
                return Outcome(member, await future)
        except TimeoutError:
            if member.link is not link:
                return Outcome(member, None, "its stream ended before it answered")
            return Outcome(
                member,
                None,
                f"it did not answer within {ANSWER_SECONDS:g} s; one of an older version does not know the question",
            )
        finally:
            del self._open[number]

    def _note(self, outcomes: Sequence[Outcome]) -> None:
        read = [one for one in outcomes if one.answer is not None and not one.answer.refused]
        refused = [one for one in outcomes if one.answer is not None and one.answer.refused]
        silent = [one for one in outcomes if one.answer is None]
        parts = (("read by", read), ("refused by", refused), ("no answer of", silent))
        said = [f"{what} {_ids(which)}" for what, which in parts if which]
        if said:
            what = What.SETTINGS_REFUSED if refused else What.SETTINGS_RELOADED
            self._ledger.note(what, f"settings of proxies: {'; '.join(said)}", actor.get())


def _ids(outcomes: Sequence[Outcome]) -> str:
    return ranges.shortened(ranges.show(one.member.record.id for one in outcomes))
