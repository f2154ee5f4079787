"""``slotferry doctor``: what will hurt, the worst first."""

from itertools import groupby

import typer

from slotferry.calls import Answer
from slotferry.operator import options
from slotferry.output import answer, say
from slots.counting import counted
from slots.forms import Form

SHOWN_OF_A_RULE = 5
"""Findings of one rule that are shown one by one; of the rest, what they are about is told in one line."""
NAMED = 8
HURTS, WILL_HURT = 2, 1
"""Exit status with a critical finding, also if nobody could be asked; and with a warning."""


def doctor(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", form: options.Output = Form.TABLE
) -> None:
    """Look at servers, proxies and topom, and say what will hurt, the worst first, with the remedy.

    The exit status is 0 if there is nothing, or notes only, 1 with a warning, and 2 with what is critical, or if topom
    cannot be asked.
    """
    try:
        found = options.ask(topom, token, lambda client: client.doctor())
    except typer.Exit as error:
        raise typer.Exit(HURTS if error.exit_code == 1 else error.exit_code) from None
    answer(found, form, lambda: _say(found))
    if found["counts"].get("critical"):
        raise typer.Exit(HURTS)
    if found["counts"].get("warning"):
        raise typer.Exit(WILL_HURT)


def _say(found: Answer) -> None:
    findings = found["findings"]
    for (severity, rule, harm), of_rule in groupby(findings, lambda one: (one["severity"], one["rule"], one["harm"])):
        listed = list(of_rule)
        total = len(listed) + found["more"].get(rule, 0)
        say(f"{severity.upper()} {rule}{f' ({total})' if total > 1 else ''}: {harm}")
        for one in listed[:SHOWN_OF_A_RULE]:
            say(f"  {one['subject']}: {one['seen']}")
            say(f"    to do: {one['remedy']}")
        rest = [one["subject"] for one in listed[SHOWN_OF_A_RULE:]]
        if total > SHOWN_OF_A_RULE:
            names = ", ".join(rest[:NAMED])
            say(f"  and {total - SHOWN_OF_A_RULE} more: {names}{', …' if total - SHOWN_OF_A_RULE > NAMED else ''}")
    asked = found["servers"] - found["not_asked"]
    counts = found["counts"]
    critical, warnings, notes = (counts.get(severity, 0) for severity in ("critical", "warning", "note"))
    parts = (
        f"{critical:,} critical" if critical else "",
        counted(warnings, "warning") if warnings else "",
        counted(notes, "note") if notes else "",
    )
    said = ", ".join(part for part in parts if part)
    say(f"looked at {counted(asked, 'server')}: {said or 'nothing will hurt, as far as can be seen'}")
