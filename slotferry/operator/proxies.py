"""``slotferry proxy list|show|remove`` and ``migrator list``: the proxies and migrators that topom knows."""

from typing import Annotated

import typer

from slotferry.operator import options
from slotferry.operator.looking import say_migrators, say_proxies, say_proxy, the
from slotferry.operator.options import ProxyId
from slotferry.output import answer, say
from slots.forms import Form


def list_proxies(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", form: options.Output = Form.TABLE
) -> None:
    """List the proxies that topom knows."""
    found = options.ask(topom, token, lambda client: client.proxies())
    answer({"proxies": found}, form, lambda: say_proxies(found))


def show_proxy(
    proxy_id: ProxyId,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Show one proxy."""
    known = options.ask(topom, token, lambda client: client.proxies())
    found = the(known, "id", proxy_id, "proxy")
    answer(found, form, lambda: say_proxy(found))


def list_migrators(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", form: options.Output = Form.TABLE
) -> None:
    """List the migrators that topom knows."""
    found = options.ask(topom, token, lambda client: client.migrators())
    answer(found, form, lambda: say_migrators(found["migrators"]))


def remove_proxy(
    proxy_id: ProxyId,
    force: Annotated[
        bool, typer.Option("--force", help="Remove it even if a Redis server cannot be reached to cut the proxy off.")
    ] = False,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Cut a proxy off all Redis servers and forget it. A proxy that still runs registers again."""
    found = options.ask(topom, token, lambda client: client.remove_proxy(proxy_id, force))

    def tell() -> None:
        say(f"proxy {proxy_id} removed")
        for address, reason in found.get("not_fenced", {}).items():
            say(f"it could not be cut off {address}: {reason}")

    answer(found, form, tell)
