"""Environment variables that were meant as settings and name none are found, as misspelt lines of a file are.

A process that passed over them would run without what they say: a proxy without the password that it was given lets
everybody in.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping

OURS = "SLOTFERRY_"
OTHERS = frozenset(
    {f"{OURS}TOPOM", f"{OURS}TOKEN", f"{OURS}REDIS_SERVER", f"{OURS}EVERY_FAULT", f"{OURS}REQUIRE_STORES"}
)
"""Of the command line, of throw-away clusters and of the tests."""
PREFIXES = (f"{OURS}PROXY_", f"{OURS}TOPOM_", f"{OURS}SIZING_")
"""What the settings of each process begin with. A process passes over those of the others."""
NEAR = 0.85
"""How like a variable of another prefix has to be to one of ours to have been meant as that, of 1."""

_SERVICE = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$")
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://")


def misspelt(prefix: str, names: Collection[str], environment: Mapping[str, str]) -> list[str]:
    """A sentence for each variable that was meant for this process and names none of its settings.

    Args:
        prefix: of the process's variables.
        names: of its settings, in lower case.
    """
    known = [f"{prefix}{name.upper()}" for name in names]
    sentences = []
    for variable, value in environment.items():
        name = variable.upper()
        if not name.startswith(OURS) or name in OTHERS or name in known or _is_service(name, value):
            continue
        if name.startswith(prefix):
            near = nearest(name.removeprefix(prefix).lower(), names)
            hint = f"; did you mean {prefix}{near.upper()}?" if near else f". The settings are: {', '.join(names)}."
        elif not name.startswith(PREFIXES) and (near := nearest(name, known, NEAR)):
            hint = f"; did you mean {near}?"
        else:
            continue
        sentences.append(f"The environment variable {variable} names no setting{hint} Correct it, or unset it.")
    return sentences


def nearest(name: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """The name among those known that this one is most like; None if it is less than that like any."""
    return next(iter(difflib.get_close_matches(name, list(known), 1, likeness)), None)


def _is_service(name: str, value: str) -> bool:
    """Whether Kubernetes says by this variable where a service of a name like ours is."""
    return bool(_SERVICE.search(name)) or (name.endswith("_PORT") and bool(_SERVICE_URL.match(value)))
