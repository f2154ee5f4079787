"""Decides from a Lua script's text whether the script only touches the keys that it is given.

While a slot moves, a script may run at the target only if every key that it touches is known to be absent from the
source (**absent-first**). The proxy looks for the keys that a request names, in the database of its session. It cannot
see other keys. So a script runs then only if its text shows that there are none:

- ``redis.call`` and ``redis.pcall``, or a local name for one, are called with the command's name as a literal. The
  command reads or writes only keys at fixed places (:mod:`slots.commands`): no SELECT, no SORT, no KEYS.
- At those places is ``KEYS[...]``, a local name that never has another value, or ``unpack(KEYS)``.
- ``KEYS`` and ``redis`` are not changed, passed on or reached in another way.

The text is parsed as Lua 5.1. A text that is not understood proves nothing. So the answer may be no for a harmless
script, but never yes for a harmful one. **bounded**: a text longer than :data:`LONGEST` or nested deeper than
:data:`DEEPEST` is not examined.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

from slots import commands
from slots.commands import Route

LONGEST = 8 * 1024
"""In bytes; to parse so many takes some milliseconds."""
DEEPEST = 60

KEYLESS = frozenset({"ECHO", "PING", "PUBLISH", "SPUBLISH", "TIME"})
"""Commands for scripts that touch no key of any database."""
HARMLESS = frozenset(
    {"LOG_DEBUG", "LOG_NOTICE", "LOG_VERBOSE", "LOG_WARNING", "REDIS_VERSION", "REDIS_VERSION_NUM"}
    | {"error_reply", "log", "replicate_commands", "setresp", "sha1hex", "status_reply"}
)
"""Fields of ``redis`` that run no command."""
FORBIDDEN = frozenset(
    {"_ENV", "_G", "debug", "dofile", "getfenv", "getmetatable", "load", "loadfile", "loadstring", "module", "rawset"}
    | {"_VERSION", "require", "server", "setfenv"}
)
"""Names by which a script may run, change or name something that its text does not show. All scripts of a server share
the metatable of strings."""
OURS = frozenset({"KEYS", "ipairs", "redis", "unpack"})
"""Names that must have the meaning of Redis and Lua."""

TOKENS = re.compile(
    r"""
    (?P<blank>[ \t\v\f\r\n]+|--\[(?P<comment>=*)\[.*?\](?P=comment)\]|--(?!\[=*\[)[^\r\n]*)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<number>0[xX][0-9A-Fa-f]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    |(?P<string>"(?:[^"\\\r\n]|\\.)*"|'(?:[^'\\\r\n]|\\.)*'|\[(?P<long>=*)\[.*?\](?P=long)\])
    |(?P<symbol>(?!--|\[=*\[)(?:\.\.\.|\.\.|==|~=|<=|>=|[-+*/%^#<>=(){}\[\];:,.]))
    """,
    re.VERBOSE | re.DOTALL,
)
"""A comment or a long string that does not end is nothing else. Else its end would be looked for at every bracket."""
KEYWORDS = frozenset(
    {"and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local", "nil", "not", "or"}
    | {"repeat", "return", "then", "true", "until", "while"}
)
BINARY = frozenset({"+", "-", "*", "/", "%", "^", "..", "==", "~=", "<", "<=", ">", ">=", "and", "or"})
BLOCK_ENDS = frozenset({"", "end", "else", "elseif", "until"})

# The kinds of expressions that matter. A quoted text is STRING followed by the text, a name is NAME followed by the
# name.
OTHER, MANY, NOTHING, KEY, ALL_KEYS, SPREAD_KEYS, EACH_KEY, REDIS, CALL = (
    *("other", "many", "nothing", "key", "KEYS", "unpack(KEYS)", "ipairs(KEYS)", "redis", "redis.call"),
)
STRING, NAME = "'", "$"
END = ""


class NotUnderstood(Exception):
    """The text is not Lua, or uses something that cannot be limited."""


@dataclass(slots=True)
class Facts:
    """The actions of a script."""

    calls: list[list[str]] = field(default_factory=list)
    """The arguments of each ``redis.call``."""
    called: list[tuple[str, list[str]]] = field(default_factory=list)
    """The same for each call of a name, which may be a name for ``redis.call``."""
    used: set[str] = field(default_factory=set)
    """Names that are used in another way than by a call."""
    bound: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The values that each name gets."""


def keeps_to_keys(script: bytes) -> bool:
    """Whether a script's text shows that it only touches the keys that it is given, in its session's database."""
    return commands_called(script) is not None


def commands_called(script: bytes) -> frozenset[str] | None:
    """The commands that a script calls, as the command table names them; None if its text does not show that it keeps
    to its keys."""
    if len(script) > LONGEST or b"\0" in script:
        return None
    text = script.decode("latin-1")
    if text.startswith("#!"):
        text = text.partition("\n")[2]
    try:
        facts = _Parser(_tokens(text)).facts()
    except NotUnderstood:
        return None
    runs = {name for name, kinds in facts.bound.items() if CALL in kinds}
    if any(facts.bound[name] != {CALL} or name in facts.used for name in runs):
        return None
    calls = facts.calls + [arguments for name, arguments in facts.called if name in runs]
    names = {NAME + name for name, kinds in facts.bound.items() if KEY in kinds and kinds <= {KEY, NOTHING}}
    found = {_limited(arguments, names) for arguments in calls}
    return None if None in found else frozenset(name for name in found if name is not None)


def _limited(arguments: list[str], names: set[str]) -> str | None:
    """The command of a call that has one of the script's keys at each place of a key; None for another call."""
    words = []
    for argument in arguments[:2]:
        if not argument.startswith(STRING):
            break
        words.append(argument.removeprefix(STRING).upper())
    row = commands.table().get(words[0]) if words else None
    if row is not None and row.container:
        row = commands.table().get("|".join(words))
    if row is None:
        return None
    if row.name in KEYLESS:
        return row.name
    if row.route not in (Route.KEYED, Route.SPLIT) or row.keys or not row.first or row.last < -1:
        return None
    if arguments[-1] == MANY and (row.last < 0 or len(arguments) - 1 <= row.last):
        # The last argument may stand for several values, which may be keys.
        return None
    last = row.last if row.last > 0 else len(arguments) - 1
    for place in range(row.first, min(last, len(arguments) - 1) + 1, row.step):
        if arguments[place] == SPREAD_KEYS and place == len(arguments) - 1:
            break
        if arguments[place] != KEY and arguments[place] not in names:
            return None
    return row.name


def _tokens(text: str) -> list[tuple[str, str]]:
    """The kind and text of each token: name, number or string, or the symbol or keyword itself."""
    found: list[tuple[str, str]] = []
    place = 0
    while place < len(text):
        token = TOKENS.match(text, place)
        if token is None:
            raise NotUnderstood
        place = token.end()
        shown = token.group()
        kind = next(name for name in ("blank", "name", "number", "string", "symbol") if token.group(name) is not None)
        if kind == "name" and shown in FORBIDDEN:
            raise NotUnderstood
        if kind != "blank":
            found.append((shown if kind == "symbol" or shown in KEYWORDS else kind, shown))
    found.append((END, ""))
    return found


class _Parser:
    """Reads statements and expressions. For an expression it returns the kind."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._place = 0
        self._depth = 0
        self._facts = Facts()

    def facts(self) -> Facts:
        """The actions of the text."""
        self._block()
        self._expect(END)
        return self._facts

    # -- tokens --------------------------------------------------------------------------------------------

    @property
    def _next(self) -> str:
        return self._tokens[self._place][0]

    def _take(self) -> str:
        shown = self._tokens[self._place][1]
        self._place += 1
        return shown

    def _expect(self, kind: str) -> str:
        if self._next != kind:
            raise NotUnderstood
        return self._take() if kind != END else ""

    def _accept(self, kind: str) -> bool:
        if self._next != kind:
            return False
        self._place += 1
        return True

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise NotUnderstood

    # -- statements ----------------------------------------------------------------------------------------

    def _block(self) -> None:
        self._deeper()
        while self._next not in BLOCK_ENDS:
            self._statement()
            self._accept(";")
        self._depth -= 1

    def _statement(self) -> None:
        kind = self._next
        if kind in ("do", "while", "repeat", "if", "for", "function", "local", "return", "break"):
            self._take()
        if kind == "do":
            self._body()
        elif kind == "while":
            self._expression()
            self._expect("do")
            self._body()
        elif kind == "repeat":
            self._block()
            self._expect("until")
            self._expression()
        elif kind == "if":
            self._if()
        elif kind == "for":
            self._for()
        elif kind == "function":
            self._bind(self._expect("name"), OTHER)
            while self._accept("."):
                self._expect("name")
            if self._accept(":"):
                # It is the implicit first parameter.
                self._expect("name")
                self._bind("self", OTHER)
            self._function()
        elif kind == "local" and self._accept("function"):
            self._bind(self._expect("name"), OTHER)
            self._function()
        elif kind == "local":
            names = self._names()
            self._bind_all(names, self._expressions(CALL) if self._accept("=") else [])
        elif kind == "return":
            if self._next not in BLOCK_ENDS and self._next != ";":
                self._expressions()
        elif kind != "break":
            self._assignment_or_call()

    def _body(self) -> None:
        self._block()
        self._expect("end")

    def _if(self) -> None:
        self._expression()
        self._expect("then")
        self._block()
        while self._accept("elseif"):
            self._expression()
            self._expect("then")
            self._block()
        if self._accept("else"):
            self._block()
        self._expect("end")

    def _for(self) -> None:
        names = self._names()
        if self._accept("="):
            self._expressions()
            self._bind_all(names, [OTHER])
        else:
            self._expect("in")
            values = self._expressions(EACH_KEY)
            for place, name in enumerate(names):
                self._bind(name, KEY if values == [EACH_KEY] and place == 1 else OTHER)
        self._expect("do")
        self._body()

    def _function(self) -> None:
        """A function, from its parameters on."""
        self._expect("(")
        while not self._accept(")"):
            if not self._accept("..."):
                self._bind(self._expect("name"), OTHER)
            if self._next != ")":
                self._expect(",")
        self._body()

    def _assignment_or_call(self) -> None:
        targets = [self._suffixed()]
        while self._accept(","):
            targets.append(self._suffixed())
        if self._next != "=" and targets == [MANY]:
            return
        self._expect("=")
        values = self._expressions(CALL)
        names = []
        for target in targets:
            if target.startswith(NAME):
                names.append(target.removeprefix(NAME))
            elif target != OTHER:
                # Its value is an element of KEYS, a field of redis, or the result of a call.
                raise NotUnderstood
            else:
                names.append("")
        self._bind_all(names, values)

    def _names(self) -> list[str]:
        names = [self._expect("name")]
        while self._accept(","):
            names.append(self._expect("name"))
        return names

    def _bind_all(self, names: list[str], values: list[str]) -> None:
        for place, name in enumerate(names):
            if place < len(values) and values[place] != SPREAD_KEYS:
                kind = values[place]
            elif values and values[-1] == SPREAD_KEYS:
                kind = KEY
            else:
                kind = OTHER if values and values[-1] == MANY else NOTHING
            self._bind(name, kind)

    def _bind(self, name: str, kind: str) -> None:
        """A name gets a value; an empty name is a field of something."""
        if name in OURS or (not name and kind == CALL):
            raise NotUnderstood
        self._facts.bound[name].add(kind if kind in (KEY, NOTHING, CALL) else OTHER)

    # -- expressions ---------------------------------------------------------------------------------------

    def _expressions(self, allowed: str = "") -> list[str]:
        found = [self._expression(allowed)]
        while self._accept(","):
            found.append(self._expression(allowed))
        return found

    def _expression(self, allowed: str = "") -> str:
        """A whole expression. A value that runs commands, or leads to KEYS, is passed on only where it is
        ``allowed``."""
        kind = self._operand()
        while self._next in BINARY:
            self._take()
            if {kind, self._operand()} & {CALL, EACH_KEY}:
                raise NotUnderstood
            kind = OTHER
        if kind in (CALL, EACH_KEY) and kind != allowed:
            raise NotUnderstood
        return kind

    def _operand(self) -> str:
        unary = False
        while self._next in ("not", "-", "#"):
            length = self._take() == "#"
            if length and self._next == "name" and self._tokens[self._place][1] == "KEYS":
                following = self._tokens[self._place + 1][0]
                if following not in ("[", ".", ":", "(", "{", "string"):
                    self._take()
                    return OTHER
            unary = True
        kind = self._simple()
        if unary and kind in (CALL, EACH_KEY):
            raise NotUnderstood
        return OTHER if unary else kind

    def _simple(self) -> str:
        kind = self._next
        if kind == "function":
            self._take()
            self._function()
            return OTHER
        if kind == "{":
            self._table()
            return OTHER
        if kind == "string":
            shown = self._take()
            return STRING + shown[1:-1] if shown[0] in "'\"" and "\\" not in shown else OTHER
        if kind == "...":
            self._take()
            return MANY
        if kind in ("number", "nil", "true", "false"):
            self._take()
            return OTHER
        found = self._suffixed()
        if found.startswith(NAME):
            self._facts.used.add(found.removeprefix(NAME))
        return found

    def _table(self) -> None:
        self._deeper()
        self._expect("{")
        while not self._accept("}"):
            if self._accept("["):
                self._expression()
                self._expect("]")
                self._expect("=")
            elif self._next == "name" and self._tokens[self._place + 1][0] == "=":
                self._take()
                self._take()
            self._expression()
            if self._next != "}" and not self._accept(";"):
                self._expect(",")
        self._depth -= 1

    def _suffixed(self) -> str:
        """A name or a parenthesis, with the fields, indices and arguments that follow it."""
        self._deeper()
        if self._accept("("):
            self._expression()
            self._expect(")")
            kind = OTHER
        else:
            name = self._expect("name")
            kind = {"redis": REDIS, "KEYS": ALL_KEYS}.get(name, NAME + name)
        while (following := self._next) in (".", "[", ":", "(", "{", "string"):
            if kind == REDIS:
                kind = self._field_of_redis()
            elif kind == ALL_KEYS:
                self._expect("[")
                self._expression()
                self._expect("]")
                kind = KEY
            elif following in ("(", "{", "string"):
                kind = self._called(kind)
            elif kind == CALL:
                raise NotUnderstood
            else:
                self._note_use(kind)
                kind = self._member(following)
        if kind in (REDIS, ALL_KEYS):
            raise NotUnderstood
        self._depth -= 1
        return kind

    def _note_use(self, kind: str) -> None:
        if kind.startswith(NAME):
            self._facts.used.add(kind.removeprefix(NAME))

    def _member(self, following: str) -> str:
        self._take()
        if following == "[":
            self._expression()
            self._expect("]")
            return OTHER
        self._expect("name")
        if following == ":":
            self._called(OTHER)
            return MANY
        return OTHER

    def _field_of_redis(self) -> str:
        self._expect(".")
        name = self._expect("name")
        if name in ("call", "pcall"):
            return CALL
        if name not in HARMLESS:
            raise NotUnderstood
        return OTHER

    def _called(self, kind: str) -> str:
        """The arguments of a call; give the kind of its result."""
        if self._next != "(":
            if kind == CALL:
                raise NotUnderstood
            self._simple()
            self._note_use(kind)
            return MANY
        self._take()
        name = kind.removeprefix(NAME)
        if name in ("unpack", "ipairs") and self._next == "name" and self._tokens[self._place][1] == "KEYS":
            following = self._tokens[self._place + 1][0]
            if following in (",", ")"):
                self._take()
                while self._accept(","):
                    self._expression()
                self._expect(")")
                return SPREAD_KEYS if name == "unpack" else EACH_KEY
        arguments = []
        while not self._accept(")"):
            arguments.append(self._expression())
            if self._next != ")":
                self._expect(",")
        if kind == CALL:
            self._facts.calls.append(arguments)
        elif kind.startswith(NAME):
            self._facts.called.append((name, arguments))
        return MANY
