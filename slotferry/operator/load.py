"""``slotferry load``: how busy slots, groups, servers, proxies and users are, and which keys are hot; big keys and slow
commands."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated

import typer
from rich.table import Table

from slotferry.calls import Answer
from slotferry.operator import options
from slotferry.output import answer, drawn, moment, out, say, size, span
from slots.forms import Form

RATES = ("requests/s", "errors/s", "in/s", "out/s", "last minute")
WORST: Mapping[str, Callable[[Answer], str]] = {
    "big_request": lambda row: size(row["bytes_in"]),
    "big_reply": lambda row: size(row["bytes_out"]),
    "big_collection": lambda row: f"{row['elements']:,} elements",
    "slow": lambda row: f"{row['milliseconds']:,.1f} ms",
}
"""The figure that each reason is about."""


def load(
    rows: Annotated[
        int,
        typer.Option(
            "--rows", metavar="N", min=1, max=100, help="Rows of slots, users, hot keys and notable requests, at most."
        ),
    ] = 10,
    all_slots: Annotated[bool, typer.Option("--all-slots", help="Every slot, by number.")] = False,
    proxies: Annotated[bool, typer.Option("--proxies", help="Proxies, too.")] = False,
    notable: Annotated[
        bool, typer.Option("--notable", help="Big keys and slow commands instead, the last ones first.")
    ] = False,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Show how much is asked of slots, groups, servers and users, and the keys that are asked for most. Rates are
    means of late; the last column counts the requests of the minute that ended last."""
    if notable:
        _show_notable(options.ask(topom, token, lambda client: client.notable(rows)), form)
        return
    found = options.ask(topom, token, lambda client: client.load(all_slots))

    def tell() -> None:
        say(summary(found))
        for table in (
            groups(found),
            servers(found),
            *([_proxies(found)] if proxies else []),
            _users(found, rows),
            _slots(found, None if all_slots else rows),
            hot_keys(found, rows),
        ):
            out.print(table)

    answer(found, form, tell)


def summary(found: Answer) -> str:
    """All requests in one line, and how well they are known."""
    total = found["total"]
    telling = f"{found['proxies_telling']} of {found['proxies_total']} proxies tell their load"
    if not found["measured_seconds"]:
        return f"nothing is measured yet; {telling}"
    return (
        f"{total['requests']:,.0f} requests/s, {total['errors']:,.0f} errors/s, {size(int(total['bytes_in']))}/s in, "
        f"{size(int(total['bytes_out']))}/s out; measured for {span(found['measured_seconds'])}; {telling}"
    )


def groups(found: Answer) -> Table:
    """Groups by number."""
    rows = ((str(row["group_id"]), row["slots"], *_rates(row), _mean(row)) for row in found["groups"])
    return drawn(("group", "slots", *RATES, "ms"), rows, title="groups")


def servers(found: Answer, most: int | None = None) -> Table:
    """Servers by group, or the busiest ones."""
    listed: Sequence[Answer] = found["servers"]
    if most is not None:
        listed = sorted(listed, key=lambda row: -row["requests"])[:most]
    rows = ((row["server"], str(row["group_id"]), *_rates(row), _mean(row)) for row in listed)
    return drawn(("server", "group", *RATES, "ms"), rows, title="servers")


def hot_keys(found: Answer, most: int) -> Table:
    """The keys that are asked for most, the hottest first."""
    rows = (
        (
            f"hash {row['key']}" if row["hashed"] else row["key"],
            str(row["database"]),
            str(row["slot"]),
            str(row["group_id"]),
            f"{row['rate']:,.0f}",
            f"{row['excess']:,.0f}",
            f"{100 * row['share']:.1f}%",
        )
        for row in found["hot_keys"][:most]
    )
    return drawn(("key", "db", "slot", "group", "requests/s", "at most too high by", "share"), rows, title="hot keys")


def _proxies(found: Answer) -> Table:
    rows = ((str(row["proxy_id"]), row["address"], *_rates(row)) for row in found["proxies"])
    return drawn(("proxy", "address", *RATES), rows, title="proxies")


def _users(found: Answer, most: int) -> Table:
    rows = ((row["user"], *_rates(row)) for row in found["users"][:most])
    return drawn(("user", *RATES), rows, title="users")


def _slots(found: Answer, most: int | None) -> Table:
    rows = ((str(row["slot"]), str(row["group_id"]), *_rates(row)) for row in found["slots"][:most])
    return drawn(("slot", "group", *RATES), rows, title="slots")


def _mean(row: Answer) -> str | None:
    return None if row["milliseconds"] is None else f"{row['milliseconds']:.2f}"


def _rates(row: Answer) -> Iterator[object]:
    yield f"{row['requests']:,.0f}"
    yield f"{row['errors']:,.0f}"
    yield size(int(row["bytes_in"]))
    yield size(int(row["bytes_out"]))
    yield row["minute"]["requests"]


def _show_notable(found: Answer, form: Form) -> None:
    def tell() -> None:
        if found["requests"]:
            out.print(_notable(found))
        else:
            say(f"no big keys and no slow commands since {moment(found['since'])}, when this topom began to lead")

    answer(found, form, tell)


def _notable(found: Answer) -> Table:
    rows = (
        (
            row["why"].replace("_", " "),
            f"hash {row['key']}" if row["hashed"] and row["key"] else row["key"],
            row["command"],
            str(row["database"]),
            None if row["slot"] is None else str(row["slot"]),
            str(row["group_id"]) if row["group_id"] else None,
            WORST[row["why"]](row),
            row["times"],
            f"{span(max(0.0, time.time() - row['last_at']))} ago",
            row["user"],
            row["client"],
        )
        for row in found["requests"]
    )
    columns = ("why", "key", "command", "db", "slot", "group", "worst", "times", "last", "user", "client")
    return drawn(columns, rows, title="big keys and slow commands")
