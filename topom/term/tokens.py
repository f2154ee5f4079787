"""The tokens of topom's API: who has one, and in which role.

A token is a secret. What shows it acts under the token's name and has its role. All topoms over one store have the same
tokens, so each can check what another passes on.

**bounded**: the number of tokens, and the length of a name and a secret.
"""

import hmac
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import structlog

from slots.smallfiles import read_small

log = structlog.get_logger(__name__)

MOST_TOKENS = 100
LEAST_SECRET = 16
"""Characters of a secret at least: nobody guesses so many."""
MOST_SECRET = 256
OWN = "operator"
"""The name of topom's own token, the setting ``token``."""
TOPOM = "topom"
"""No token has this name: events call topom itself so."""
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_SECRET = re.compile(r"[!-+\--~]*")  # what can be seen in ASCII, without the comma


class Role(StrEnum):
    """What a token may be used for."""

    VIEWER = "viewer"
    """To see everything: each GET, metrics and the page."""
    OPERATOR = "operator"
    """For everything."""
    PROXY = "proxy"
    """For the control stream of a proxy, and nothing else."""
    MIGRATOR = "migrator"
    """For the stream of a migrator, and nothing else."""

    def may(self, needed: "Role") -> bool:
        """Whether this role is enough where ``needed`` is asked for."""
        return self in (needed, Role.OPERATOR)


@dataclass(frozen=True, slots=True)
class Token:
    """A secret, who has it, and in which role."""

    role: Role
    name: str
    secret: bytes = field(repr=False)


class Tokens:
    """All tokens that a topom takes. They may be replaced while it runs; then all in :attr:`replaced` are called.

    Args:
        own: the secret of topom's own token.
        more: the others.
    """

    def __init__(self, own: str, *more: Token) -> None:
        self.all = tuple(token for token in (Token(Role.OPERATOR, OWN, own.encode()), *more) if token.secret)
        """topom's own first. An empty secret is none."""
        self.replaced: list[Callable[[], None]] = []

    def replace(self, other: "Tokens") -> None:
        """Take those of ``other`` from now on, and no others."""
        if other.all != self.all:
            self.all = other.all
            for tell in self.replaced:
                tell()

    def find(self, secret: bytes) -> Token | None:
        """The token with this secret, or None. How long it takes shows neither which one it is nor how near one is."""
        found = None
        for token in self.all:  # all are compared, even after one is found
            if hmac.compare_digest(secret, token.secret):
                found = token
        return found

    @property
    def operators(self) -> Iterator[str]:
        """The secrets of operators, topom's own first."""
        return (token.secret.decode() for token in self.all if token.role is Role.OPERATOR)


def parse_tokens(entries: Sequence[str], own: str = "") -> tuple[Token, ...]:
    """The tokens of entries such as ``viewer:grafana:SECRET``.

    Args:
        own: the secret of topom's own token, which no entry may have; empty if it is not known.

    Raises:
        ValueError: an entry cannot be used. The message says which, and shows nothing of it: it is a secret.
    """
    if len(entries) > MOST_TOKENS:
        raise ValueError(f"there are {len(entries)}, and there may be {MOST_TOKENS} at most")
    tokens: list[Token] = []
    taken = {own: "the setting token"} if own else {}
    for number, entry in enumerate(entries, 1):
        role, colon, rest = entry.partition(":")
        name, second, secret = rest.partition(":")
        if not (colon and second):
            raise ValueError(f"entry {number} has to be like viewer:grafana:SECRET, a role, a name and a secret")
        if role not in set(Role):
            raise ValueError(f"entry {number}: its role has to be {', '.join(Role)}")
        if not _NAME.fullmatch(name) or name == TOPOM:
            allowed = "1 to 64 letters, digits, dots, hyphens and underscores"
            raise ValueError(f"entry {number}: its name consists of {allowed}, and is not {TOPOM}")
        if problem := problem_of(secret):
            raise ValueError(f"entry {number}: {problem}")
        if secret in taken:
            raise ValueError(f"entry {number} has the same secret as {taken[secret]}; give each a secret of its own")
        taken[secret] = f"entry {number}"
        tokens.append(Token(Role(role), name, secret.encode()))
    return tuple(tokens)


def problem_of(secret: str) -> str:
    """What is wrong with a secret, as the rest of a sentence that does not show it; empty if it is good."""
    if not LEAST_SECRET <= len(secret) <= MOST_SECRET:
        return f"a secret has {LEAST_SECRET} to {MOST_SECRET} characters, such as those of openssl rand -hex 32"
    if not _SECRET.fullmatch(secret):
        return "a secret consists of printable ASCII characters without blanks and commas"
    return ""


def kept_token(path: Path, make: bool) -> str:
    """The secret in this file; only the owner may read it.

    Args:
        make: whether it is made if there is none. Else that is an error: the file may be about to be written.

    Raises:
        OSError: the file can neither be read nor made.
        ValueError: what is in the file cannot be a secret.
    """
    try:
        token = read_small(path).decode("ascii", "replace").strip()
    except FileNotFoundError:
        if not make:
            raise
        token = ""
    if make and not token:
        token = secrets.token_urlsafe(32)
        # The file is made under another name and renamed, so that no file without a token is ever left.
        draft = path.with_name(path.name + ".new")
        draft.unlink(missing_ok=True)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(token + "\n")
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
        log.info("token_made", file=str(path))
    if problem := problem_of(token):
        raise ValueError(problem)
    return token
