"""Wrong usage of the command, told in words for those who use it and not in those of the library that found it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from typer.core import TyperGroup

from slots.wrongvalues import in_words

BEHIND = ("--topom", "--token", "--output", "-o")
"""Options that each verb has, and the command itself has not."""
SYNONYMS = {
    **dict.fromkeys(("delete", "rm", "del", "drop"), ("remove",)),
    **dict.fromkeys(("add", "create", "new", "register"), ("add", "set")),
    **dict.fromkeys(("ls", "all"), ("list",)),
    **dict.fromkeys(("get", "describe", "info", "inspect", "status"), ("show",)),
    **dict.fromkeys(("evacuate", "empty"), ("drain",)),
    **dict.fromkeys(("abort", "stop"), ("cancel",)),
}
"""What people type, and the verbs that may be meant: the first one that there is."""
BEFORE = ("--context", "--tls-ca", "--tls-certificate", "--tls-key")
"""Options of the command itself."""


NO_VERB = re.compile(r"No such command '([^']+)'\.$")


class Root(TyperGroup):
    """The command itself, with all its verbs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _unfold(self)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Of the command's own options."""
        with _explained():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Reads the verb's options, and runs it."""
        with _explained():
            return super().invoke(ctx)


def _unfold(verb: Any) -> None:
    """Each paragraph of a help is one line: the terminal folds it, and where the code does is seen by nobody."""
    verb.help = "\n\n".join(" ".join(part.split()) for part in (verb.help or "").split("\n\n"))
    for below in getattr(verb, "commands", {}).values():
        _unfold(below)


@contextmanager
def _explained() -> Iterator[None]:
    # Which classes these errors have depends on the version of typer.
    try:
        yield
    except Exception as error:
        if hasattr(error, "message"):
            error.message = _explain(error, error.message)
        raise


def _explain(error: Any, message: str) -> str:
    option, place = getattr(error, "option_name", ""), getattr(error, "ctx", None)
    if option in BEHIND and place is not None and place.parent is None:
        return f"{message}. It goes behind the verb: slotferry VERB {option} ..."
    if option in BEFORE:
        return f"{message}. It goes before the verb: slotferry {option} ... VERB"
    if place is not None and (said := NO_VERB.match(message)):
        verbs = getattr(place.command, "commands", ())
        meant = next((verb for verb in SYNONYMS.get(said[1], ()) if verb in verbs), None)
        return f"{message} Did you mean {meant!r}?" if meant else message
    if place is not None and "unexpected extra argument" in message and _has_slots(place.command):
        return f"{message}. Slots are named by --slots"
    found = getattr(error.__cause__ or error.__context__, "errors", None)
    if "Input should be" in message and callable(found):
        return f"it {in_words(found()[0])}"
    return message


def _has_slots(verb: Any) -> bool:
    return any("--slots" in option.opts for option in verb.params)
