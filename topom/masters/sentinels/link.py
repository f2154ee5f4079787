"""topom's connections to one Sentinel: for questions and commands, and one on which the Sentinel announces switches.

**bounded**: every call has a time limit, and a Sentinel that does not answer is asked again after growing waits, with
full jitter.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError

from slots.access import ServerAccess
from slots.backoff import Backoff
from slots.connections import PREFIX
from slots.failures import FAILURES
from slots.replies import NotUnderstood, understood
from topom.cluster.topology import parse_address
from topom.masters.sentinels import addresses
from topom.masters.sentinels.monitoring import Command
from topom.reasons import Kind, Reason, Reasons

log = structlog.get_logger(__name__)

ANSWER_SECONDS = 5.0
"""How long topom waits for an answer. A Sentinel that is told to watch or to forget a group gives no answer at all
until its file is on the disk. That takes seconds if others write to that disk."""
FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 5.0
FRESH_SECONDS = 5.0
"""How long a Sentinel's answer counts. It is asked each second, so an older answer means that one side was held up."""
SWITCH = "+switch-master"
"""The channel on which a Sentinel says that a group has another master."""
NAMES_A_CALL = 64
"""For how many names a Sentinel is asked for the replicas at a time."""
NOT_ASKED = Reason(Kind.BUSY, "it was not asked yet")
NO_SUCH_MASTER = "no such master"


class SentinelLink:
    """One Sentinel.

    Attributes:
        correcting: is held while topom tells it what to watch.
        listed: the replicas of each name that it listed when it was last asked, ``host:port``.
    """

    def __init__(self, address: str, access: ServerAccess, leads: Callable[[], bool] = lambda: True) -> None:
        self.address = address
        self._leads = leads
        self._reasons = Reasons[None]("sentinel_down")
        self._asked = False
        self.correcting = asyncio.Lock()
        self.listed: Mapping[str, frozenset[str]] = {}
        self.wake = asyncio.Event()
        """Set so that it is asked at once."""
        self.told: set[str] = set()
        """Names for which it got the login since this topom began, or since it was last away."""
        self.due = True
        """Whether it may have to watch other groups than before."""
        self.step_at = 0.0
        """When topom looks again, in any case, whether it watches the right groups."""
        self._named: Mapping[str, str | None] = {}
        self._named_at = 0.0
        host, port = parse_address(address)
        self._client: Redis = access.client(
            host,
            port,
            client_name=f"{PREFIX}.topom",
            socket_timeout=ANSWER_SECONDS,
            socket_connect_timeout=ANSWER_SECONDS,
            retry=Retry(NoBackoff(), 0),
            max_connections=4,
            decode_responses=True,
        )

    @property
    def up(self) -> bool:
        """Whether it answered when it was last asked."""
        return self.reason is None

    @property
    def reason(self) -> Reason | None:
        """Why it cannot be used; None while it answers."""
        return self._reasons.get(None) if self._asked else NOT_ASKED

    @property
    def silent(self) -> bool:
        """Whether it did not answer when it was last asked."""
        return self._asked and not self.up

    @property
    def named(self) -> Mapping[str, str | None] | None:
        """The masters that it names, ``host:port``, by the group's name; None for a group that it does not watch.

        None instead of the whole mapping if it does not answer, or has not answered lately.
        """
        fresh = asyncio.get_running_loop().time() - self._named_at < FRESH_SECONDS
        return self._named if self.up and fresh else None

    async def look(self, names: Sequence[str]) -> None:
        """Ask for the masters of these names. Raises as :meth:`call`."""
        at = asyncio.get_running_loop().time()
        async with asyncio.timeout(ANSWER_SECONDS):
            async with self._client.pipeline(transaction=False) as pipeline:
                pipeline.execute_command("PING")
                for name in names:
                    pipeline.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name)
                _, *answers = await pipeline.execute()
        with understood("SENTINEL GET-MASTER-ADDR-BY-NAME"):
            self._named = {
                name: addresses.text(*_pair(answer)) if answer else None
                for name, answer in zip(names, answers, strict=True)
            }
        self._named_at = at
        if not self.up:
            log.info("sentinel_up", sentinel=self.address)
        self._asked = True
        self._reasons.over(None)

    async def list_replicas(self, names: Sequence[str]) -> None:
        """Ask for the replicas of these names. Raises as :meth:`call`."""
        found: dict[str, frozenset[str]] = {}
        for start in range(0, len(names), NAMES_A_CALL):
            asked = names[start : start + NAMES_A_CALL]
            async with asyncio.timeout(ANSWER_SECONDS):
                async with self._client.pipeline(transaction=False) as pipeline:
                    for name in asked:
                        pipeline.execute_command("SENTINEL", "REPLICAS", name)
                    answers = await pipeline.execute(raise_on_error=False)
            for name, answer in zip(asked, answers, strict=True):
                if isinstance(answer, ResponseError):
                    if NO_SUCH_MASTER not in str(answer).lower():
                        raise answer
                    continue
                with understood("SENTINEL REPLICAS"):
                    listed = [_fields(flat) for flat in answer]
                    found[name] = frozenset(addresses.text(*_pair([one["ip"], one["port"]])) for one in listed)
        self.listed = found

    async def masters(self) -> dict[str, dict[str, str]]:
        """All masters that it watches, by name: the fields of SENTINEL MASTERS. Raises as :meth:`call`."""
        listed = await self.call(("MASTERS",))
        with understood("SENTINEL MASTERS"):
            return {fields["name"]: fields for fields in map(_fields, listed)}

    async def call(self, command: Command) -> list[list[str]]:
        """Send one command of the SENTINEL family. A topom that has ceased to lead may only ask.

        Raises:
            One of :data:`slots.failures.FAILURES`.
        """
        if command[0] != "MASTERS" and not self._leads():
            raise ConnectionAbortedError("this topom does not lead any more")
        async with asyncio.timeout(ANSWER_SECONDS):
            answer: list[list[str]] = await self._client.execute_command("SENTINEL", *command)
        return answer

    async def forget(self, name: str) -> None:
        """Let it forget a name, whether it watches it or not. Raises as :meth:`call`."""
        self.told.discard(name)
        try:
            await self.call(("REMOVE", name))
        except ResponseError as error:
            if NO_SUCH_MASTER not in str(error).lower():
                raise
        # What it said of the name does not count any longer.
        self._named = {one: master for one, master in self._named.items() if one != name}

    def lost(self, error: BaseException) -> None:
        """Note that it did not answer: all that it said before ceases to count."""
        what = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        self._asked = True
        self._reasons.waits(None, Reason(Kind.SENTINEL, what), sentinel=self.address)
        self._named = {}
        self.told.clear()

    async def listen(self, switched: Callable[[str], None]) -> None:
        """Call ``switched`` with a master's name each time this Sentinel announces another server for it. Endless."""
        backoff = Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS)
        while True:
            try:
                async with self._client.pubsub(ignore_subscribe_messages=True) as subscription:
                    async with asyncio.timeout(ANSWER_SECONDS):
                        await subscription.subscribe(SWITCH)
                    backoff.reset()
                    while True:
                        # A timeout of redis-py ends no connection here. If an announcement gets lost, the regular
                        # questions find the switch.
                        message = await subscription.get_message(timeout=ANSWER_SECONDS)
                        if message is not None:
                            with understood("SUBSCRIBE"):
                                switched(str(message["data"]).partition(" ")[0])
            except FAILURES as error:
                log.debug("sentinel_subscription_lost", sentinel=self.address, reason=str(error))
            await asyncio.sleep(backoff.next())

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def _pair(answer: Any) -> tuple[str, int]:
    """Host and port. Raises TypeError or ValueError for anything else."""
    host, port = answer
    if not isinstance(host, str) or not host.isprintable() or not 0 <= int(port) <= 65535:
        raise ValueError(f"{host!r:.50} and {port!r:.50} are no address")
    return host, int(port)


def _fields(flat: object) -> dict[str, str]:
    """Names and values from a list in which they take turns. Raises NotUnderstood for anything else."""
    if not isinstance(flat, list) or not all(isinstance(one, str) for one in flat) or len(flat) % 2:
        raise NotUnderstood(f"it answers with what are no names and values: {flat!r:.50}")
    return dict(zip(flat[::2], flat[1::2], strict=True))
