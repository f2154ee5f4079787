"""What the workers of a proxy ask each other: CLIENT LIST and INFO show the whole proxy, not one process.

Every worker answers each question, the asking one included. Answers are JSON values; None is no answer. The families of
commands ask and answer (:mod:`proxy.commands`).
"""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import ConfigDict, Field, PlainValidator

from slots.messages.message import Part, Signed


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("Input should be a text")
    return value


AnyText: TypeAlias = Annotated[str, PlainValidator(_text)]
"""A text made from bytes of a client or a server, which need not be UTF-8: it may have surrogates."""


class Asked(Part):
    """A question of any kind. The first field, ``what``, is the name of its kind."""

    model_config = ConfigDict(extra="forbid")

    what: str


class ClientFilter(Part):
    """Selects clients: those for which every condition holds."""

    model_config = ConfigDict(extra="forbid")

    ids: list[Signed] | None = None
    kind: AnyText | None = None
    address: AnyText | None = None
    local_address: AnyText | None = None
    user: AnyText | None = None
    least_age: Signed | None = None
    """In seconds."""
    but: Signed | None = None
    """The number of a client that is never selected."""


class Clients(Asked):
    """Number and line of each selected client: a list of pairs."""

    what: Literal["clients"] = "clients"
    filter: ClientFilter


class KillClients(Asked):
    """Close the selected clients, but not the ``asker``, by its number. The answer is how many were selected."""

    what: Literal["kill_clients"] = "kill_clients"
    filter: ClientFilter
    asker: Signed


class ClientCounts(Asked):
    """How many clients there are of each kind, by its name."""

    what: Literal["client_counts"] = "client_counts"


class WorkerCounters(Asked):
    """The counters, by name."""

    what: Literal["counters"] = "counters"


class SlowLog(Asked):
    """The newest entries of the slow log, ``count`` at most; None for all."""

    what: Literal["slow_log"] = "slow_log"
    count: Signed | None


class SlowLogLength(Asked):
    """How many entries the slow log has."""

    what: Literal["slow_log_length"] = "slow_log_length"


class SlowLogReset(Asked):
    """Empty the slow log."""

    what: Literal["slow_log_reset"] = "slow_log_reset"


class CommandStatistics(Asked):
    """Calls, errors, microseconds and a histogram of each command, by its name."""

    what: Literal["statistics"] = "statistics"


class Script(Asked):
    """The script of that digest: ``{"body", "loaded"}``. Texts of scripts are in Latin-1."""

    what: Literal["script"] = "script"
    name: AnyText


class ScriptLoaded(Asked):
    """Remember this script, which is loaded at every master."""

    what: Literal["script_loaded"] = "script_loaded"
    body: AnyText


class ScriptsKnown(Asked):
    """For each digest, what is known of its script."""

    what: Literal["scripts_known"] = "scripts_known"
    names: list[AnyText]


class ScriptsFlushed(Asked):
    """Forget which servers have scripts; with ``bodies``, the scripts themselves, too."""

    what: Literal["scripts_flushed"] = "scripts_flushed"
    bodies: bool


class Unblock(Asked):
    """End the wait of the client of this number: 1 if that was done, else 0."""

    what: Literal["unblock"] = "unblock"
    number: Signed
    error: bool
    """Whether its command ends with an error, and not as if its time was over."""


class RedirectedTo(Part):
    """What one client has to drop, for others (CLIENT TRACKING with REDIRECT)."""

    model_config = ConfigDict(extra="forbid")

    number: Signed
    user: AnyText
    words: list[AnyText]
    """In Latin-1: each an array of keys in RESP, or the null of RESP3 for everything."""


class Redirected(Asked):
    """Tell these clients what they have to drop. For each that belongs to the worker, the answer has its index here,
    and what became of it."""

    what: Literal["redirected"] = "redirected"
    targets: list[RedirectedTo]


Question: TypeAlias = Annotated[
    Clients
    | KillClients
    | ClientCounts
    | WorkerCounters
    | SlowLog
    | SlowLogLength
    | SlowLogReset
    | CommandStatistics
    | Script
    | ScriptLoaded
    | ScriptsKnown
    | ScriptsFlushed
    | Unblock
    | Redirected,
    Field(discriminator="what"),
]
