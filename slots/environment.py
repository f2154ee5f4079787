"""Finds misspelt environment variables: they look like a setting but name none.

A process that ignored them would run without these settings. A proxy that misses its password would let everybody in.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping

OURS = "SLOTFERRY_"
OTHERS = frozenset(
    f"{OURS}{name}"
    for name in (
        "TLS_CA",
        "TLS_CERTIFICATE",
        "TLS_KEY",
        "TOPOM",
        "TOKEN",
        "TOKEN_FILE",
        "REDIS_SERVER",
        "EVERY_FAULT",
        "REQUIRE_STORES",
    )
)
"""Variables of the command line, of throw-away clusters and of the tests."""
PREFIXES = (f"{OURS}PROXY_", f"{OURS}TOPOM_", f"{OURS}MIGRATOR_", f"{OURS}SIZING_")
"""The prefixes of the settings of each process. A process ignores the settings of the others."""
NEAR = 0.85
"""How similar a variable with another prefix has to be to one of ours to count as misspelt; 1 is the same."""

_SERVICE = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$")
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://")


def misspelt(
    prefix: str, names: Collection[str], environment: Mapping[str, str], others: Collection[str] = ()
) -> list[str]:
    """A sentence for each variable that was meant for this process and names none of its settings.

    Args:
        prefix: what the process's variables begin with.
        names: the names of its settings, in lower case.
        others: other names that its variables may have.
    """
    meant = [*names, *others]
    known = [f"{prefix}{name.upper()}" for name in meant]
    sentences = []
    for variable, value in environment.items():
        name = variable.upper()
        if not name.startswith(OURS) or name in OTHERS or name in known or _is_service(name, value):
            continue
        if name.startswith(prefix):
            near = nearest(name.removeprefix(prefix).lower(), meant)
            hint = f"; did you mean {prefix}{near.upper()}?" if near else f". The settings are: {', '.join(names)}."
        elif not name.startswith(PREFIXES) and (near := nearest(name, known, NEAR)):
            hint = f"; did you mean {near}?"
        else:
            continue
        sentences.append(f"The environment variable {variable} names no setting{hint} Correct it, or unset it.")
    return sentences


def nearest(name: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """The known name that is most similar to this one; None if none is similar enough."""
    return next(iter(difflib.get_close_matches(name, list(known), 1, likeness)), None)


def _is_service(name: str, value: str) -> bool:
    """Whether Kubernetes set this variable to say where a service with a name like ours is."""
    return bool(_SERVICE.search(name)) or (name.endswith("_PORT") and bool(_SERVICE_URL.match(value)))
