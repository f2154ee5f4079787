"""``slotferry rules``: shows, tests and changes what of a key says its slot."""

import asyncio
from typing import Annotated

import typer

from slotferry.calls import Answer, TopomError, TopomRefused, TopomUnreachable
from slotferry.client import TopomClient
from slotferry.operator import options
from slotferry.operator.waiting import Patience
from slotferry.output import answer, fail, note, say, table
from slots import functions
from slots.counting import counted
from slots.forms import Form
from slots.keynames import readable
from slots.keyslots import KeySlots
from slots.profiles import profile, profiles
from slots.rules import RuleError, SlotRule, rules_from_wire

POLL_SECONDS = 0.2
LINE_SECONDS = 5.0
"""How often is said how far a change is."""
RUNNING = ("counting", "locking", "checking")

app = typer.Typer(no_args_is_help=True, help="See, test and change slot rules: what of a key says its slot.")

Patterns = Annotated[
    list[str],
    typer.Argument(
        metavar="PATTERN...",
        help="Keys, such as 'bull:(*):*'. * is any bytes; what stands in parentheses is hashed.",
    ),
]
Database = Annotated[
    int | None, typer.Option("--database", metavar="N", min=0, help="Only in this database; in all if left out.")
]
Limit = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", min=1, help="How long to wait for the change. It goes on after that."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count the keys that would be in another group.")]


@app.command("list")
def list_rules(
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """List the slot rules, in their order, and say how a change of them goes."""
    found = options.ask(topom, token, lambda client: client.rules())

    def tell() -> None:
        _say_rules(found["rules"])
        change = found["change"]
        if change is not None and change["stage"] in RUNNING:
            say(_progress(change))

    answer(found, form, tell)


@app.command("add")
def add_rules(
    patterns: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATTERN...]",
            help="Keys, such as 'bull:(*):*'. * is any bytes; what stands in parentheses is hashed.",
        ),
    ] = None,
    framework: Annotated[
        str | None,
        typer.Option("--profile", metavar="NAME", help=f"The rules of a framework: {', '.join(profiles())}."),
    ] = None,
    tag: Annotated[
        str | None,
        typer.Option(
            "--tag",
            metavar="TEXT",
            help="What is hashed in place of the key, where nothing is in parentheses; the pattern's own text if left "
            "out.",
        ),
    ] = None,
    database: Database = None,
    first: Annotated[bool, typer.Option("--first", help="Before the rules that there are, not behind them.")] = False,
    dry_run: DryRun = False,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    limit: Limit = options.DEFAULT_LIMIT,
    form: options.Output = Form.TABLE,
) -> None:
    """Add slot rules. The first that matches a key says its slot. Refused if keys would be in another group by them."""
    if not patterns and framework is None:
        raise fail("name what is to be added: patterns of keys, or the profile of a framework with --profile")
    rules = [_rule(pattern, database, tag) for pattern in patterns or []]
    if framework is not None:
        try:
            rules += profile(framework, database)
        except RuleError as error:
            raise fail(str(error)) from None
    _change(topom, token, limit, form, rules, [], first, dry_run)


@app.command("remove")
def remove_rules(
    patterns: Patterns,
    database: Database = None,
    dry_run: DryRun = False,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    limit: Limit = options.DEFAULT_LIMIT,
    form: options.Output = Form.TABLE,
) -> None:
    """Remove slot rules. Refused if keys would be in another group without them."""
    named = [{"pattern": pattern, "database": database} for pattern in patterns]
    _change(topom, token, limit, form, [], named, False, dry_run)


@app.command("test")
def try_keys(
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="Keys, as a client would write them.")],
    database: Annotated[int, typer.Option("--database", metavar="N", min=0, help="The database they are in.")] = 0,
    added: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="PATTERN", help="As if this rule were behind the others; may be repeated."),
    ] = None,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Show which rule says the slot of each key, what of it is hashed, and whether all keys have one slot.

    Ends with status 1 where they have not.
    """
    status = options.ask(topom, token, lambda client: client.status())
    rules = [*rules_from_wire(status["slot_rules"]), *(_rule(pattern, None, None) for pattern in added or [])]
    try:
        slots = KeySlots(status["slot_function"], status["number_of_slots"], rules)
    except RuleError as error:
        raise fail(str(error)) from None
    found = []
    for key in keys:
        # Bytes that are not text come from the shell as surrogates.
        raw = key.encode(errors="surrogateescape")
        rule = slots.rule_of(database, raw)
        hashed = functions.hash_tag(slots.function, slots.hashed(database, raw))
        found.append(
            {
                "key": readable(raw),
                "rule": None if rule is None else rule.pattern,
                "hashed": readable(hashed),
                "slot": slots.slot_of(database, raw),
            }
        )
    answer(found, form, lambda: table(("key", "rule", "hashed", "slot"), [tuple(one.values()) for one in found]))
    if len({one["slot"] for one in found}) > 1:
        raise typer.Exit(1)


@app.command("cancel")
def cancel(
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """End a change of the slot rules that is under way. The rules stay as they are, unless it was too late."""
    found = options.ask(topom, token, lambda client: client.cancel_rules())
    answer(found, form, lambda: _say_rules(found["rules"]))


def _rule(pattern: str, database: int | None, tag: str | None) -> SlotRule:
    try:
        return SlotRule(pattern, database, tag)
    except RuleError as error:
        raise fail(str(error)) from None


def _change(
    topom: str,
    token: str,
    limit: float,
    form: Form,
    add: list[SlotRule],
    remove: list[Answer],
    first: bool,
    dry_run: bool,
) -> None:
    """Have the rules changed, wait, and tell the outcome; ends with status 1 where nothing was changed."""

    async def work(client: TopomClient) -> Answer:
        begun = await client.change_rules([rule.to_wire() for rule in add], remove, first, dry_run)
        return await _over(client, begun, limit)

    found = options.ask(topom, token, work)
    change = found["change"]
    if change["stage"] in ("failed", "cancelled"):
        reason = change["reason"]
        why = "it was cancelled" if reason is None else "; ".join(filter(None, (reason["what"], reason["to_do"])))
        if form is not Form.TABLE:
            answer(found, form, lambda: None)
        raise fail(f"the slot rules stay as they are: {why}")

    def tell() -> None:
        if change["stage"] == "done":
            _say_rules(found["rules"])
        elif change["stage"] == "counted":
            _say_count(change)

    answer(found, form, tell)
    if change["stage"] == "counted" and change["misplaced"]:
        raise typer.Exit(1)


async def _over(client: TopomClient, begun: Answer, limit: float) -> Answer:
    """What topom says once this change is over; after ``limit`` seconds it still goes on."""
    found, patience = begun, Patience()
    loop = asyncio.get_running_loop()
    told = loop.time()
    try:
        async with asyncio.timeout(limit):
            while found["change"]["stage"] in RUNNING:
                await asyncio.sleep(POLL_SECONDS)
                if loop.time() - told > LINE_SECONDS:
                    note(_progress(found["change"]))
                    told = loop.time()
                try:
                    now = await client.rules()
                    patience.heard()
                except (TopomUnreachable, TopomRefused) as error:
                    patience.bear(error)
                    continue
                if now["change"] is None or now["change"]["began_at"] != begun["change"]["began_at"]:
                    if not begun["change"]["dry_run"] and now["rules"] == begun["change"]["rules"]:
                        return {**now, "change": {**begun["change"], "stage": "done"}}
                    raise TopomError(
                        "another topom leads by now, and has let the slot rules be as they were; try again"
                    )
                found = now
    except TimeoutError:
        note("it goes on; see slotferry rules list")
    return found


def _progress(change: Answer) -> str:
    what = {
        "counting": "keys are counted",
        "locking": "all slots are locked",
        "checking": "keys are counted again, and clients get TRYAGAIN for keys whose slot changes",
    }[change["stage"]]
    return f"the slot rules are being changed: {what}, {change['keys']:,} so far"


def _say_rules(rules: list[Answer]) -> None:
    if not rules:
        say("there are no slot rules: each key goes by its hash tag")
        return
    rows = [
        (one["pattern"], "all" if one["database"] is None else one["database"], one["tag"] or "what is in parentheses")
        for one in rules
    ]
    table(("pattern", "database", "what is hashed"), rows)


def _say_count(change: Answer) -> None:
    keys = counted(change["keys"], "key")
    if not change["misplaced"]:
        say(f"no key of {keys} would be in another group")
        return
    named = ", ".join(change["named"])
    would = counted(change["misplaced"], "key")
    say(f"{would} of {change['keys']:,} would be in another group ({named}): the change would be refused")
