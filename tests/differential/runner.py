"""Runs an example on both sides, step by step, and compares all that comes back.

A step is over when Redis has nothing more to do, as an extra connection finds out, and when the proxy has given as many
replies. So the steps of several clients have the same order on both sides.
"""

import time
from collections import deque
from collections.abc import Callable

from proxy.commands.databases.elsewhere import MOVES
from proxy.commands.tracking.trackedserver import CHANNEL
from slots.keyslots import KeySlots
from slots.rules import SlotRule
from tests.differential.contents import Contents, contents_of
from tests.differential.differences import in_redis_order, same_reply
from tests.differential.examples import Bare, Example, Send, Step, Walk
from tests.differential.model import (
    BLOCKING,
    SUBSCRIBING,
    Client,
    Command,
    keys_in,
    may_touch_others,
    name,
    sorting_keys,
)
from tests.differential.sides import PATIENCE, Control, Side, Silence
from tests.differential.users import OF_OTHERS, User
from tests.differential.wire import decode, encode, show

ONE_SLOT = SlotRule("*", tag="one")
MOST_ROUNDS = 3000
"""Steps of a walk over all keys, after which it counts as one that never ends."""


class Different(AssertionError):
    """The proxy did something else than Redis."""


class GivenUp(Exception):
    """From here on the two sides' data may differ, for a reason that ``docs/commands.md`` has."""


class Runner:
    """Both sides, for many examples.

    Args:
        proxy: host and port of a proxy.
        redis: those of a plain Redis that only this uses.
        servers: those of the Redis servers behind the proxy.
        key_slots: the product's slots.
        moving: whether slots move meanwhile.
        counts: whether PUBLISH answers the number of clients.
        beside: databases of the servers that hold something else than examples.
    """

    def __init__(
        self,
        proxy: tuple[str, int],
        redis: tuple[str, int],
        servers: list[tuple[str, int]],
        key_slots: KeySlots,
        moving: bool = False,
        counts: bool = False,
        beside: tuple[bytes, ...] = (),
    ) -> None:
        self.proxy = Side("the proxy", proxy)
        self.redis = Side("Redis", redis)
        self.control = Control(redis)
        self.behind = [Control(server) for server in servers]
        self.key_slots = key_slots
        self.moving = moving
        self.counts = counts
        self._beside = beside
        self.compared = 0
        """Replies and messages that were compared."""
        self.examples = 0
        self.given_up = 0
        """Examples that were not compared to their end."""
        self._clients: list[Client] = []
        self._user: User | None = None
        self._waiting: set[int] = set()
        # Whether a client's subscriptions ended without a confirmation: nobody says when it is no longer counted.
        self._left_unsaid = False

    @property
    def one_slot(self) -> bool:
        """Whether a slot rule makes all keys one slot."""
        return self.key_slots.rules == (ONE_SLOT,)

    def close(self) -> None:
        """Close all connections."""
        for side in (self.proxy, self.redis):
            side.close()
        for control in (self.control, *self.behind):
            control.close()

    def run(self, example: Example, user: User | None = None) -> None:
        """Run an example from an empty keyspace, with clients that have logged in as a user.

        Raises:
            Different: with the first thing that differs.
        """
        self.examples += 1
        self._user = user
        key_slots = user.key_slots(self.key_slots.rules) if user is not None else self.key_slots
        self.forget_everything()
        if user is not None and user.prefix:
            proxy = Control(self.proxy.address)
            proxy.ask(*((b"SET", key, b"of others") for key in OF_OTHERS))
            proxy.close()
        self._clients = [Client(key_slots) for _ in example.protocols]
        try:
            self.proxy.open(len(example.protocols))
            self.redis.open(len(example.protocols))
            for client, protocol in enumerate(example.protocols):
                if protocol:
                    self._step(Send(client, ((b"HELLO", b"%d" % protocol),)))
                if user is not None:
                    self._step(Send(client, user.login))
            for step in example.steps:
                self._step(step)
            self._leave()
            self._compare_contents()
        except Silence as error:
            raise Different(str(error)) from error
        except GivenUp:
            self.given_up += 1
        finally:
            self.proxy.close()
            self.redis.close()

    # What comes before and after

    def forget_everything(self) -> None:
        """No key, no script, no function on either side, and no client."""
        self._clients = []
        self._waiting = set()
        self._left_unsaid = False
        forget = [(b"FLUSHALL",), (b"SCRIPT", b"FLUSH"), (b"FUNCTION", b"FLUSH")]
        self.control.ask(*forget)
        proxy = Control(self.proxy.address)
        # While slots move, a request to all servers may have to be made again.
        self._until(
            lambda: proxy.ask(*forget) == [b"+OK\r\n"] * len(forget), lambda: "the proxy does not forget everything"
        )
        proxy.close()
        # Clients of the example before have gone: what they waited for is over as well.
        self._until(lambda: self.control.waiting() == 0, lambda: "Redis has clients that wait, without any client")
        self._until(self._all_wait, lambda: "servers have clients that wait, without any client")
        if self.counts:
            self._until(self._nobody_listens, lambda: "subscriptions are left, without any client")

    def _leave(self) -> None:
        """End the clients that can send QUIT; nothing more comes, and the connection closes."""
        # One that is given no replies Redis does not close either.
        leaving = [
            client
            for client, state in enumerate(self._clients)
            if self._can_send(client) and not state.muted and not state.skipped
        ]
        for client in leaving:
            self._clients[client].sent((b"QUIT",), [])
            for side in (self.redis, self.proxy):
                side.clients[client].send(encode((b"QUIT",)))
        for side in (self.redis, self.proxy):
            ends = [side.clients[client] for client in leaving]
            side.wait_until(lambda ends=ends: all(one.ended for one in ends), lambda: "does not close after QUIT")  # type: ignore[misc]
        self._compare()
        for number, (ours, theirs) in enumerate(zip(self.proxy.clients, self.redis.clients, strict=True)):
            for kind in ("replies", "messages"):
                if getattr(ours, kind) or getattr(theirs, kind):
                    raise Different(f"client {number}: more {kind} {getattr(ours, kind)}, {getattr(theirs, kind)}")

    def _compare_contents(self) -> None:
        """Compare what the servers have."""
        # A key that moves while this looks is at the next server, or was at the one before.
        ours = contents_of([*self.behind, *self.behind[:-1][::-1]], self._beside)
        if self._user is not None and self._user.prefix:
            ours = self._within(ours, self._user.prefix)
        theirs = contents_of([self.control], self._beside)
        self.compared += len(theirs)
        for database, key in sorted(ours.keys() | theirs.keys()):
            one, other = ours.get((database, key)), theirs.get((database, key))
            if one != other:
                raise Different(f"database {database!r} has {key!r}, by its digest: proxy: {one!r}, Redis: {other!r}")

    def _within(self, contents: Contents, prefix: bytes) -> Contents:
        """What there is with a prefix, without it. What others have is as it was."""
        others = {place: digest for place, digest in contents.items() if not place[1].startswith(prefix)}
        if set(others) != {(b"0", key) for key in OF_OTHERS} or len(set(others.values())) != 1:
            raise Different(f"others have {others!r}")
        mine = contents.items() - others.items()
        return {(database, key.removeprefix(prefix)): digest for (database, key), digest in mine}

    # One step

    def _can_send(self, client: int) -> bool:
        return client not in self._waiting and not self.redis.clients[client].ended

    def _step(self, step: Step) -> None:
        if not self._can_send(step.client):
            return
        if isinstance(step, Walk):
            self._walk(step)
            return
        if isinstance(step, Bare):
            if self._clients[step.client].in_transaction or self._clients[step.client].muted:
                return
            self._clients[step.client].subscription = (b"?",)
            self._exchange(step.client, step.data, 0)
            return
        commands = self._allowed(step)
        if not commands:
            return
        least = self._expected(step.client)
        blocking = any(name(command) in BLOCKING for command in commands)
        self._exchange(step.client, b"".join(map(encode, commands)), least if step.waits or not blocking else 0)

    def _allowed(self, step: Send) -> list[Command]:
        """The commands that may be sent, noted as sent."""
        client = self._clients[step.client]
        found: list[Command] = []
        asked = self.control.ask(*((b"COMMAND", b"GETKEYS", *command) for command in step.commands))
        for command, reply in zip(step.commands, asked, strict=True):
            if self._user is not None and self._user.may_leave(command):
                continue
            keys = keys_in(reply) + sorting_keys(command)
            # With somebody waiting while slots move, who gets there first is not ours to say.
            unsaid = self.moving and self._waiting and found
            untaken = self.moving and may_touch_others(command)
            if client.may_send(command, keys) and not unsaid and not untaken:
                client.sent(command, keys)
                found.append(command)
                self._left_unsaid |= name(command) == "RESET"
        if any(name(command) in SUBSCRIBING for command in found):
            for side in (self.proxy, self.redis):
                side.clients[step.client].subscribed = True
        return found

    def _expected(self, client: int) -> int:
        """Replies and messages that the client has after all it awaits."""
        connection = self.redis.clients[client]
        return connection.received + len(self._clients[client].awaited)

    def _exchange(self, client: int, data: bytes, least: int) -> None:
        """Send to both, wait until Redis is done and the proxy has given as much, and compare."""
        self.redis.clients[client].send(data)
        self.proxy.clients[client].send(data)
        one = self.redis.clients[client]
        self.redis.wait_until(lambda: one.received >= least or one.ended, lambda: f"no reply to {data[:300]!r}")
        self.control.settled()
        self._find_waiting(client)
        for connection in self.redis.clients:
            connection.read()

        def as_much() -> bool:
            both = zip(self.proxy.clients, self.redis.clients, strict=True)
            return all(ours.ended or (ours.received >= theirs.received and not theirs.ended) for ours, theirs in both)

        def owed() -> str:
            both = enumerate(zip(self.proxy.clients, self.redis.clients, strict=True))
            lacking = {number: [*theirs.replies, *theirs.messages] for number, (ours, theirs) in both}
            return f"gives less than Redis to {data[:300]!r}; Redis: {lacking}"

        self.proxy.wait_until(as_much, owed)
        self._until(self._end_alike, lambda: f"only one of both has closed connections after {data[:300]!r}")
        self._compare()
        if self._waiting:
            self._until(self._all_wait, lambda: f"{len(self._waiting)} clients wait, but at the servers others do")

    def _end_alike(self) -> bool:
        """Whether both have closed the same connections. Each closes one a little after the reply that says why."""
        both = list(zip(self.proxy.clients, self.redis.clients, strict=True))
        for pair in both:
            for connection in pair:
                connection.read()
        return all(ours.ended == theirs.ended for ours, theirs in both)

    def _find_waiting(self, client: int) -> None:
        """Whom Redis keeps waiting."""
        awaiting = self._clients[client].awaited
        if not self._waiting and not any(name(command) in BLOCKING for command in awaiting):
            return
        if not self.control.waiting():
            self._waiting = set()
            self.control.settled()
            return
        for connection in self.redis.clients:
            connection.read()
        # Those that have fewer replies than they have sent commands for.
        self._waiting = {
            number
            for number, (one, state) in enumerate(zip(self.redis.clients, self._clients, strict=True))
            if len(one.replies) < len(state.awaited) and not one.ended
        }

    def _all_wait(self) -> bool:
        return sum(server.waiting() for server in self.behind) == len(self._waiting)

    def _nobody_listens(self) -> bool:
        channels, patterns = (b"PUBSUB", b"CHANNELS"), (b"PUBSUB", b"NUMPAT")
        shards = (b"PUBSUB", b"SHARDCHANNELS")
        # A worker that no client tracks keys at goes on to do so for a while.
        none, tracking = b"*0\r\n", encode((CHANNEL,))
        nobody = [none, b":0\r\n", none], [tracking, b":0\r\n", none]
        return all(server.ask(channels, patterns, shards) in nobody for server in (self.control, *self.behind))

    def _until(self, met: Callable[[], bool], what: Callable[[], str]) -> None:
        limit = time.monotonic() + PATIENCE
        while not met():
            if time.monotonic() > limit:
                raise Different(what())
            time.sleep(0.001)

    # Comparing

    def _compare(self) -> None:
        """Compare what both have given."""
        for number, (ours, theirs) in enumerate(zip(self.proxy.clients, self.redis.clients, strict=True)):
            if self._clients[number].subscription:
                for one in (ours, theirs):
                    one.replies = deque(in_redis_order(list(one.replies)))
            while ours.replies and theirs.replies:
                expected = theirs.replies.popleft()
                command, queued = self._clients[number].answered(expected)
                self._same(number, command, ours.replies.popleft(), expected, queued)
            count = min(len(ours.messages), len(theirs.messages))
            both = [in_redis_order([one.messages.popleft() for _ in range(count)]) for one in (ours, theirs)]
            for message, expected in zip(*both, strict=True):
                self._same(number, (b"(message)",), message, expected, ())
            if ours.ended != theirs.ended:
                raise Different(
                    f"client {number}: {'the proxy' if ours.ended else 'Redis'} has closed the connection, the other "
                    f"has not; left: {[*ours.replies]}, {[*theirs.replies]}"
                )

    def _same(self, client: int, command: Command, ours: bytes, theirs: bytes, queued: tuple[Command, ...]) -> None:
        self.compared += 1
        nothing = ours in (b"*-1\r\n", b"_\r\n") and ours != theirs
        if self.moving and nothing and name(command) == "EXEC" and self._clients[client].watched:
            # A slot that moves counts as a watched key that was changed.
            raise GivenUp
        if self.moving and ours == MOVES:
            # Nothing is run in two databases while a slot moves; the client tries again later.
            raise GivenUp
        if self._user is not None and self._user.same_refusal(command, ours, theirs):
            return
        counted = self.counts and not self._left_unsaid and not any(one.ended for one in self.redis.clients)
        if not same_reply(command, ours, theirs, self.moving, queued, counted):
            raise Different(
                f"client {client}: {' '.join(map(repr, command))}\n  proxy: {show(ours)}\n  Redis: {show(theirs)}"
            )

    # Walks

    def _walk(self, step: Walk) -> None:
        client = self._clients[step.client]
        if client.in_transaction or client.muted or client.subscription or self.redis.clients[step.client].subscribed:
            return
        ours = self._walked(self.proxy, step)
        theirs = self._walked(self.redis, step)
        self.compared += 1
        if ours != theirs:
            raise Different(f"client {step.client}: {step}\n  proxy: {ours!r}\n  Redis: {theirs!r}")

    def _walked(self, side: Side, step: Walk) -> bytes | set[tuple[bytes, ...]]:
        """All elements, in no order; or the error."""
        connection = side.clients[step.client]
        cursor = b"0"
        found: set[tuple[bytes, ...]] = set()
        for _ in range(MOST_ROUNDS):
            place = (step.key, cursor) if step.key else (cursor,)
            connection.send(encode((step.command, *place, *step.options)))
            side.wait_until(lambda: bool(connection.replies) or connection.ended, lambda: f"no reply to {step}")
            if not connection.replies:
                raise Different(f"{side.name} closes the connection at {step}")
            reply = connection.replies.popleft()
            # A walk may take another number of steps on each side; that does not count.
            connection.received -= 1
            if reply[:1] == b"-":
                return reply
            first, elements = decode(reply).items
            cursor = first.text
            texts = [element.text for element in elements.items]
            pairs = step.command in (b"HSCAN", b"ZSCAN")
            found.update(zip(texts[::2], texts[1::2], strict=True) if pairs else ((text,) for text in texts))
            if cursor == b"0":
                return found
        raise Different(f"{side.name}: {step} does not end")
