"""``slotferry settings show|reload`` and ``proxy reload``: which settings are in force, and reading them anew.

A process reads its own file. No verb sends or prints the value of a setting.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from typing import Annotated

import typer

from slotferry import completing
from slotferry.calls import Answer, TopomError
from slotferry.client import TopomClient
from slotferry.operator import options
from slotferry.operator.addressing import Where
from slotferry.output import answer, moment, run, say
from slots.forms import Form

settings = typer.Typer(
    no_args_is_help=True, help="See the settings that topoms have in force, and have them read anew."
)

Proxy = Annotated[
    int | None,
    typer.Argument(
        metavar="[PROXY]",
        min=1,
        help="The proxy's id, from `slotferry proxy list`; without it, all proxies.",
        autocompletion=completing.proxies,
    ),
]


def reload_proxy(
    proxy_id: Proxy = None,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Have all proxies, or one, read their settings anew, and say for each what changed and what needs a restart.

    Each reads its own file, with all its workers. Ends with status 1 if one does not answer, refuses its file, or has
    a worker that does not follow.
    """
    found = options.ask(topom, token, lambda client: client.reload_proxies(proxy_id))

    def tell() -> None:
        for proxy in found:
            for sentence in _of_proxy(proxy):
                say(f"proxy {proxy['id']} at {proxy['address']}: {sentence}")
        if not found:
            say("there are no proxies")

    answer({"proxies": found} if proxy_id is None else found[0], form, tell)
    if any(one["silent"] or one["refused"] or one["following"] < one["workers"] for one in found):
        raise typer.Exit(1)


def _of_proxy(proxy: Answer) -> Iterator[str]:
    if proxy["silent"]:
        yield proxy["silent"]
        return
    yield from _of_settings(proxy)
    if proxy["following"] < proxy["workers"]:
        yield f"so far {proxy['following']} of {proxy['workers']} workers say that they use them; its log says more"


def _of_settings(found: Answer) -> Iterator[str]:
    """Sentences about settings that were read anew."""
    where = found["file"] or "the environment"
    if found["refused"]:
        yield f"{where} cannot be used, and nothing has changed: {found['refused']}"
        yield f"the settings in force were read at {moment(found['since'])}"
        return
    changed = ", ".join(found["changed"])
    yield f"{where}, read at {moment(found['since'])}: {f'{changed} changed' if changed else 'nothing changed'}"
    if found["restart"]:
        yield f"these differ in the file, and need a restart: {', '.join(found['restart'])}"
    if hidden := found.get("hidden"):  # an earlier topom does not tell it
        yield f"the environment has another value of these, and wins over the file: {', '.join(hidden)}"


@settings.command("show")
def show_settings(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", form: options.Output = Form.TABLE
) -> None:
    """Show which file is in force at each topom that --topom names, since when, and what needs a restart."""
    _each(topom, token, form, lambda client: client.settings(), _in_force)


@settings.command("reload")
def reload_settings(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", form: options.Output = Form.TABLE
) -> None:
    """Have each topom that --topom names read its settings anew. For proxies: slotferry proxy reload.

    Ends with status 1 if one does not answer or refuses its file.
    """
    _each(topom, token, form, lambda client: client.reload_settings(), _of_settings)


def _in_force(found: Answer) -> Iterator[str]:
    yield f"{found['file'] or 'the environment'}, read at {moment(found['since'])}"
    if found["restart"]:
        yield f"these differ in the file, and need a restart: {', '.join(found['restart'])}"
    if found["refused"]:
        yield f"the file could not be used when it was read last: {found['refused']}"


def _each(
    topom: str,
    token: str,
    form: Form,
    call: Callable[[TopomClient], Awaitable[Answer]],
    sentences: Callable[[Answer], Iterator[str]],
) -> None:
    """Ask each topom for itself, one after the other: none answers for another one. If there is one, its answer is
    printed as any other."""
    where = options.resolve(topom, token)
    urls = [url.strip() for url in where.topom.split(",") if url.strip()]
    if len(urls) == 1:
        alone = options.ask(topom, token, call)
        answer(alone, form, lambda: _say(urls[0], sentences(alone)))
        return

    async def work() -> list[Answer]:
        return [await _asked(replace(where, topom=url), call) for url in urls]

    found = run(work())

    def tell() -> None:
        for one in found:
            _say(one["topom"], [one["error"]] if one["error"] else sentences(one))

    answer({"topoms": found}, form, tell)
    if any(one["error"] for one in found):
        raise typer.Exit(1)


def _say(url: str, sentences: Iterable[str]) -> None:
    for sentence in sentences:
        say(f"topom at {url}: {sentence}")


async def _asked(where: Where, call: Callable[[TopomClient], Awaitable[Answer]]) -> Answer:
    try:
        async with options.client(where) as client:
            return {"topom": where.topom, "error": "", **await call(client)}
    except TopomError as error:
        return {"topom": where.topom, "error": str(error)}
