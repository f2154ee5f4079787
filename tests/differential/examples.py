"""An example: several clients, and what they send one after another."""

from dataclasses import dataclass

from hypothesis import strategies as st

from tests.differential import catalogue
from tests.differential.grammar import Emit, Scope, key, template
from tests.differential.vocabulary import ANY_TAGS, CHANNELS, KINDS, TAGS, WORDS

Command = tuple[bytes, ...]
MOST_CLIENTS = 3
MOST_BLOCKS = 14
MOST_PIPELINED = 8
CHANGED = 14
"""One command in so many is changed into what is likely no valid one."""
BARE = (
    *(b"PING\r\n", b"\r\n", b"  GET  {a}string1\n", b"SET {a}string1 'a b'\r\n", b'ECHO "\\x41\\n"\r\n', b"GET 'x\r\n"),
    *(b"*0\r\n", b"*-1\r\nPING\r\n", b"*1\r\n$4\r\nPINGxx", b"*x\r\n", b"*1\r\n$x\r\n", b"*1\r\n:1\r\n", b"*01\r\n"),
    *(b"*1\r\n$-1\r\n", b"*2\r\n$3\r\nGET\r\n$01\r\nx\r\n", b"get a\vb\r\n", b"*1\r\n$0\r\n\r\n"),
)
"""Bytes that are no requests as a client's library would make them."""


@dataclass(frozen=True)
class Send:
    """A client sends commands in one go; ``waits``: the last may wait a moment, and its reply is waited for."""

    client: int
    commands: tuple[Command, ...]
    waits: bool = False


@dataclass(frozen=True)
class Bare:
    """A client sends these bytes."""

    client: int
    data: bytes


@dataclass(frozen=True)
class Walk:
    """A client goes through all keys with SCAN, with these options, or through one key with a command like HSCAN."""

    client: int
    command: bytes
    key: bytes
    options: tuple[bytes, ...]


Step = Send | Bare | Walk


@dataclass(frozen=True)
class Example:
    """``protocols`` has an entry for each client: its argument of HELLO, 0 for no HELLO."""

    protocols: tuple[int, ...]
    steps: tuple[Step, ...]


FORMS: dict[str, list[Emit]] = {
    family: [template(line) for line in catalogue.lines(text)] for family, text in catalogue.FAMILIES.items()
}
DATA = [family for family in FORMS if family not in ("keyspace", "session", "scripts", "publishing", "subscribing")]
FORMS["waiting, forever"] = [
    template(line.replace("TIMEOUT", "<forever>").replace("MILLISECONDS", "<forever>"))
    for line in catalogue.lines(catalogue.WAITING)
]
FORMS["waiting, shortly"] = [
    template(line.replace("TIMEOUT", "<short>").replace("MILLISECONDS", "<short-ms>"))
    for line in catalogue.lines(catalogue.WAITING)
]


def _written(draw: st.DrawFn, families: list[str], tag: bytes, tags: tuple[bytes, ...]) -> Command:
    """A command of one of the families, as the catalogue has it."""
    forms = FORMS[draw(st.sampled_from(families))]
    scope = Scope(draw, tag, tags)
    forms[draw(st.integers(0, len(forms) - 1))](scope)
    return tuple(scope.words)


def _changed(draw: st.DrawFn, command: Command) -> Command:
    """Another command that is likely wrong."""
    kind = draw(st.integers(0, 6))
    words = list(command)
    place = draw(st.integers(0, len(words) - 1))
    if kind == 0:
        words.pop()
    elif kind == 1:
        words.pop(place)
    elif kind == 2:
        words.append(words[place])
    elif kind == 3:
        words.insert(place + 1, draw(WORDS["nothing"]))
    elif kind == 4:
        words[place] = words[place].swapcase()
    elif kind == 5:
        words[0] = draw(WORDS["no-command"])
    else:
        words[place] = draw(WORDS["nothing"])
    return tuple(words) or (b"PING",)


class Blocks:
    """Draws what one client does, as a list of steps; between them others may do something."""

    def __init__(self, draw: st.DrawFn, clients: int, one_slot: bool) -> None:
        self.draw = draw
        self.clients = clients
        # Few of each, so that commands find what others have left.
        self.tags = draw(st.lists(st.sampled_from(ANY_TAGS if one_slot else TAGS), min_size=1, max_size=3))
        self.free = tuple(self.tags) if one_slot else ()
        self.families = draw(st.one_of(st.lists(st.sampled_from(DATA), min_size=1, max_size=3), st.just(DATA)))

    def tag(self) -> bytes:
        return self.draw(st.sampled_from(self.tags))

    def command(self, families: list[str], tag: bytes | None = None) -> Command:
        command = _written(self.draw, families, self.tag() if tag is None else tag, self.free)
        return _changed(self.draw, command) if self.draw(st.integers(1, CHANGED)) == CHANGED else command

    def client(self) -> int:
        return self.draw(st.integers(0, self.clients - 1))

    def others(self, tag: bytes) -> list[Step]:
        """A step of another client in between, or none."""
        if not self.draw(st.booleans()):
            return []
        return [Send(self.client(), (self.command(self.families, tag),))]

    def pipeline(self, families: list[str]) -> list[Step]:
        # Of one family mostly, so that it meets what it has written before.
        chosen = families if self.draw(st.booleans()) else [self.draw(st.sampled_from(families))]
        size = self.draw(st.integers(1, MOST_PIPELINED))
        return [Send(self.client(), tuple(self.command(chosen) for _ in range(size)))]

    def data(self) -> list[Step]:
        return self.pipeline(self.families)

    def session(self) -> list[Step]:
        return [Send(self.client(), (self.command(["session", "keyspace"]),))]

    def scripts(self) -> list[Step]:
        return self.pipeline(["scripts"])

    def bare(self) -> list[Step]:
        return [Bare(self.client(), self.draw(st.sampled_from(BARE)))]

    def walk(self) -> list[Step]:
        options: list[bytes] = []
        for name, values in {
            b"MATCH": (b"*", b"{a}*", b"*1", b"nothing*", b"?"),
            b"COUNT": (b"1", b"3", b"10", b"1000"),
        }.items():
            if self.draw(st.booleans()):
                options += [name, self.draw(st.sampled_from(values))]
        kind = self.draw(st.sampled_from(("", "hash", "set", "zset")))
        if kind:
            scope = Scope(self.draw, self.tag(), self.free)
            name = {"hash": b"HSCAN", "set": b"SSCAN", "zset": b"ZSCAN"}[kind]
            return [Walk(self.client(), name, key(scope, kind), tuple(options))]
        if self.draw(st.booleans()):
            options += [b"TYPE", self.draw(st.sampled_from((b"string", b"hash", b"zset", b"nosuch")))]
        return [Walk(self.client(), b"SCAN", b"", tuple(options))]

    def transaction(self) -> list[Step]:
        """WATCH perhaps, MULTI, commands on one slot, EXEC, in one piece or several."""
        client = self.client()
        tag = self.tag()
        commands: list[Command] = []
        if self.draw(st.booleans()):
            kind = self.draw(st.sampled_from(KINDS))
            tags = (self.tag() if self.free else tag for _ in range(2))
            commands.append((b"WATCH", *(b"%b%b%d" % (each, kind.encode(), n) for n, each in enumerate(tags, 1))))
        commands.append((b"MULTI",))
        families = [*self.families, "scripts"] if self.draw(st.booleans()) else self.families
        for _ in range(self.draw(st.integers(0, 5))):
            if self.draw(st.integers(1, 6)) == 6:
                commands.append((b"SELECT", self.draw(WORDS["database"])))
            commands.append(self.command(families, tag))
        if self.draw(st.integers(1, 10)) == 10:
            commands.insert(
                self.draw(st.integers(0, len(commands))),
                self.draw(st.sampled_from(((b"MULTI",), (b"WATCH", tag + b"x"), (b"UNWATCH",), (b"DISCARD",)))),
            )
        commands.append(
            self.draw(st.sampled_from(((b"EXEC",), (b"EXEC",), (b"EXEC",), (b"DISCARD",), (b"EXEC", b"x"))))
        )
        steps: list[Step] = []
        while commands:
            size = self.draw(st.integers(1, len(commands)))
            steps.append(Send(client, tuple(commands[:size])))
            commands = commands[size:]
            if commands:
                steps += self.others(tag)
        return steps

    def publishing(self) -> list[Step]:
        """Somebody listens, somebody speaks."""
        listener = self.client()
        steps: list[Step] = []
        for _ in range(self.draw(st.integers(1, 3))):
            family = self.draw(st.sampled_from(("subscribing", "publishing")))
            client = listener if family == "subscribing" else self.client()
            steps.append(Send(client, (self.command([family]),)))
        steps.append(Send(self.client(), ((b"PUBLISH", self.draw(st.sampled_from(CHANNELS)), b"m"),)))
        return steps

    def waiting(self) -> list[Step]:
        """Somebody waits for what is there, for a moment, or until somebody else brings it."""
        client = self.client()
        tag = self.tag()
        if self.draw(st.booleans()):
            return [Send(client, (self.command(["waiting, shortly"], tag),), waits=True)]
        brought = [
            Send(self.client(), (self.command(["lists", "sorted sets", "streams"], tag),))
            for _ in range(self.draw(st.integers(1, 4)))
        ]
        return [Send(client, (self.command(["waiting, forever"], tag),)), *brought]


KINDS_OF_BLOCKS = {
    "data": 10,
    "transaction": 2,
    "scripts": 2,
    "waiting": 2,
    "publishing": 1,
    "walk": 1,
    "session": 1,
    "bare": 1,
}
"""The steps of a client, each with its share of all."""


@st.composite
def examples(draw: st.DrawFn, kinds: tuple[str, ...] = (), one_slot: bool = False) -> Example:
    """Examples of up to a hundred commands or so; only with ``kinds`` of blocks, where any are named.

    With ``one_slot``, keys of a command have any tags, or none.
    """
    protocols = draw(st.lists(st.sampled_from((0, 3, 2)), min_size=1, max_size=MOST_CLIENTS))
    blocks = Blocks(draw, len(protocols), one_slot)
    weighted = [kind for kind, weight in KINDS_OF_BLOCKS.items() for _ in range(weight) if not kinds or kind in kinds]
    steps: list[Step] = []
    for client in range(len(protocols)):
        database = draw(st.sampled_from((b"", b"", b"", b"0", b"3", b"15")))
        if database:
            steps.append(Send(client, ((b"SELECT", database),)))
    for _ in range(draw(st.integers(1, MOST_BLOCKS))):
        found: list[Step] = getattr(blocks, draw(st.sampled_from(weighted)))()
        steps += found
    return Example(tuple(protocols), tuple(steps))
