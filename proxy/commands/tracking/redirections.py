"""CLIENT TRACKING with REDIRECT: what a session has to drop is told to its *target*, another connection of its client.

The number of a connection says at which worker it is. A target at the same worker is told at once. The others are told
by a question to all workers (:class:`~slots.messages.questions.Redirected`), one at a time; what comes meanwhile goes
with the next one. The answer says what became of it:

- ``TOLD``: it is on its way to the client.
- ``LATER``: the target cannot be told now: it speaks RESP2 and is not subscribed to :data:`CHANNEL`. The same is
  assumed when no answer comes. From then on, the target is told each second to drop everything, until it was.
- ``GONE``: the target is closed, or has another user. A session of RESP3 is told so whenever it would have been told of
  a change, as in Redis. One of RESP2 cannot be told: its connection is closed :data:`GRACE_SECONDS` later, unless it
  tracks anew by then.

So no client keeps a value for ever of whose change nobody could tell. When a session that tracks is closed, its target
is told to drop everything, because nobody knows any more what the session has read. That is told to any user.

The value and word of its change come over two connections, in any order. A client is right if it keeps no value of
whose key it has heard since it asked for it, as with Redis. For other clients, word comes again when all replies have
been given that the session was owed.

**bounded**: :data:`MOST_BYTES` of words for other workers, and as many of words that come again. Above that, one word
to drop everything stands for those of a target, or of a session.
"""

import asyncio
import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from proxy.commands import replies
from proxy.commands.pubsub.messages import Kind
from proxy.commands.pubsub.pubsub import CONFIRMING, subscription_of
from proxy.commands.services import Services
from proxy.commands.state import user_name
from proxy.engine.outcomes import GATED
from proxy.engine.session import Session
from proxy.engine.tracking import TrackedKeys, Tracker
from slots.messages.questions import Redirected, RedirectedTo

CHANNEL = b"__redis__:invalidate"
PUSH = b">2\r\n$10\r\ninvalidate\r\n"
MESSAGE = b"*3\r\n$7\r\nmessage\r\n" + replies.bulk(CHANNEL)
EVERYTHING, EVERYTHING_RESP2 = b"_\r\n", b"$-1\r\n"
"""In place of the array of keys."""
BROKEN = b">2\r\n" + replies.bulk(b"tracking-redir-broken")
NO_SUCH_CLIENT = b"-ERR The client ID you want redirect to does not exist\r\n"
NO_ANSWER = b"-ERR the worker that has the connection to redirect to does not answer; try again\r\n"
TOLD, LATER, GONE = "told", "later", "gone"
AGAIN_SECONDS = 1.0
GRACE_SECONDS = 5.0
"""A client whose target was closed makes another one, and names it here."""
MOST_BYTES = 1024 * 1024
AGAIN_BYTES = 150
"""What is counted for a word that comes again, beyond its length."""


class Place(NamedTuple):
    """Where words go: the connection of that number, as long as it has this user."""

    target: int
    user: str


class Redirections:
    """Those of one worker.

    Args:
        services: the worker's parts.
        keys: knows what has to be told to whom.
    """

    def __init__(self, services: Services, keys: TrackedKeys) -> None:
        self._services = services
        self._workers = services.settings.worker_count
        # Sessions of this worker that were told something, by their numbers.
        self._found: dict[int, Session] = {}
        self._sessions: dict[int, dict[Tracker, Session]] = {}
        # Words that come again, each with the request behind whose reply it does.
        self._again: dict[Tracker, deque[tuple[int, bytes]]] = {}
        self._again_bytes = 0
        # Words for targets at other workers, and the task that asks them.
        self._waiting: dict[Place, dict[bytes, None]] = {}
        self._waiting_bytes = 0
        self._asking: asyncio.Task[None] | None = None
        # Places that have to be told to drop everything.
        self._late: set[Place] = set()
        self._late_at = -math.inf
        # Sessions of RESP2 that are closed then.
        self._closing: dict[Tracker, float] = {}
        keys.on_redirected = self._redirected

    # -- sessions that track -------------------------------------------------------------------------------

    async def find(self, session: Session, number: int) -> bytes | None:
        """See whether there is a connection of that number, of the same user as the session; else give the error."""
        place = Place(number, user_name(session))
        if number < 1:
            return NO_SUCH_CLIENT
        found = {place: self._give(place, ())} if self._is_here(number) else await self._ask({place: {}})
        if place not in found:
            return NO_ANSWER
        return NO_SUCH_CLIENT if found[place] == GONE else None

    def begin(self, tracker: Tracker, session: Session) -> None:
        """A session tracks, and has a target."""
        self._sessions.setdefault(tracker.target, {})[tracker] = session

    def end(self, tracker: Tracker) -> None:
        """It does so no more."""
        sessions = self._sessions.get(tracker.target, {})
        sessions.pop(tracker, None)
        if not sessions:
            self._sessions.pop(tracker.target, None)
        self._again_bytes -= _cost(self._again.pop(tracker, ()))
        self._closing.pop(tracker, None)

    def closed(self, tracker: Tracker, session: Session) -> None:
        """A session with a target was closed or reset."""
        self._tell(Place(tracker.target, user_name(session)), EVERYTHING)

    # -- telling -------------------------------------------------------------------------------------------

    def _redirected(self, tracker: Tracker, session: Session, push: bytes, after: int) -> None:
        """Tell a session's target what the engine would push to the session; also behind the reply to the request of
        the number ``after``, if that is not negative."""
        if tracker.is_broken:
            self._say_broken(tracker, session)
            return
        word = push[len(PUSH) :]
        if after >= 0:
            self._tell_again(tracker, after, word)
        self._tell(Place(tracker.target, user_name(session)), word)

    def _tell_again(self, tracker: Tracker, after: int, word: bytes) -> None:
        again = self._again.setdefault(tracker, deque())
        again.append((after, word))
        self._again_bytes += _cost([again[-1]])
        if self._again_bytes > MOST_BYTES:
            self._again_bytes -= _cost(again)
            again.clear()
            again.append((after, EVERYTHING))
            self._again_bytes += _cost(again)

    def _tell(self, place: Place, word: bytes) -> None:
        if self._is_here(place.target):
            self._took(place, self._give(place, [word]))
        else:
            self._pass_on(place, word)

    def _took(self, place: Place, outcome: str) -> None:
        if outcome == LATER:
            self._late.add(place)
        elif outcome == GONE:
            for tracker, session in list(self._sessions.get(place.target, {}).items()):
                if user_name(session) == place.user:
                    tracker.is_broken = True
                    self._say_broken(tracker, session)

    def _say_broken(self, tracker: Tracker, session: Session) -> None:
        if session.protocol == 3:
            session.push(BROKEN + replies.integer(tracker.target))
        else:
            self._closing.setdefault(tracker, self._services.now() + GRACE_SECONDS)

    def tick(self) -> None:
        """Check the limits of time; called ten times a second."""
        now = self._services.now()
        for tracker, again in list(self._again.items()):
            session = self._sessions[tracker.target][tracker]
            while again and again[0][0] <= session.taken - session.owed:
                self._again_bytes -= _cost([again[0]])
                self._tell(Place(tracker.target, user_name(session)), again.popleft()[1])
            if not again:
                self._again.pop(tracker, None)
        for tracker in [tracker for tracker, deadline in self._closing.items() if now >= deadline]:
            session = self._sessions[tracker.target][tracker]
            del self._closing[tracker]
            if session.protocol == 3:
                self._say_broken(tracker, session)
            else:
                session.close()
        if now - self._late_at >= AGAIN_SECONDS:
            self._late_at = now
            late, self._late = self._late, set()
            for place in late:
                self._tell(place, EVERYTHING)
        for number in [number for number, session in self._found.items() if session.closed]:
            del self._found[number]

    # -- targets at this worker ----------------------------------------------------------------------------

    def _is_here(self, number: int) -> bool:
        return number % self._workers == self._services.index

    def _give(self, place: Place, words: Sequence[bytes]) -> str:
        """Give words to a connection of this worker; what became of them."""
        session = self._session(place.target)
        if session is None or session.attention & GATED:
            return GONE
        if user_name(session) != place.user and words != [EVERYTHING]:
            # That one word names no key. The session that tracks may have another user by now.
            return GONE
        channels = subscription_of(session).names[Kind.CHANNEL]
        if session.protocol == 3:
            for word in words:
                session.push(PUSH + word)
        elif session.hides + CHANNEL in channels and not session.attention & CONFIRMING:
            for word in words:
                session.push(MESSAGE + (EVERYTHING_RESP2 if word == EVERYTHING else word))
        else:
            return LATER
        return TOLD

    def _session(self, number: int) -> Session | None:
        found = self._found.get(number)
        if found is None or found.closed:
            found = next((session for session in self._services.router.sessions if session.id == number), None)
            if found is None or found.closed:
                return None
            self._found[number] = found
        return found

    # -- targets at other workers --------------------------------------------------------------------------

    def _pass_on(self, place: Place, word: bytes) -> None:
        waiting = self._waiting.setdefault(place, {})
        if EVERYTHING in waiting or word in waiting:
            return
        if word == EVERYTHING or self._waiting_bytes + len(word) > MOST_BYTES:
            self._waiting_bytes -= sum(map(len, waiting))
            waiting.clear()
            word = EVERYTHING
        waiting[word] = None
        self._waiting_bytes += len(word)
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask_on())

    async def _ask_on(self) -> None:
        try:
            while self._waiting:
                asked, self._waiting, self._waiting_bytes = self._waiting, {}, 0
                answers = await self._ask(asked)
                for place in asked:
                    self._took(place, answers.get(place, LATER))
        finally:
            self._asking = None

    async def _ask(self, told: dict[Place, dict[bytes, None]]) -> dict[Place, str]:
        """Have other workers tell these; what became of it, of those that had an answer."""
        places = list(told)
        question = Redirected(
            targets=[
                RedirectedTo(number=place.target, user=place.user, words=[word.decode("latin-1") for word in words])
                for place, words in told.items()
            ]
        )
        answers = await self._services.ask_all(question)
        return {places[index]: outcome for answer in answers for index, outcome in answer}

    def answer(self, question: Redirected) -> Any:
        """For each target that belongs to this worker: its index in the question, and what became of it."""
        return [
            (index, self._give(Place(to.number, to.user), [word.encode("latin-1") for word in to.words]))
            for index, to in enumerate(question.targets)
            if self._is_here(to.number)
        ] or None

    async def close(self) -> None:
        """The worker ends."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)


def _cost(again: Iterable[tuple[int, bytes]]) -> int:
    return sum(AGAIN_BYTES + len(word) for _, word in again)
