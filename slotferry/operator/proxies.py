"""``slotferry proxy list|drain|remove``: the proxies that topom knows."""

from typing import Annotated

import typer

from slotferry.operator import options
from slotferry.operator.status import say_proxies
from slotferry.output import answer, say

ProxyId = Annotated[int, typer.Argument(metavar="PROXY", min=1, help="The proxy's id, from `slotferry proxy list`.")]


def list_proxies(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", as_json: options.Json = False
) -> None:
    """List the proxies that topom knows."""
    found = options.ask(topom, token, lambda client: client.proxies())
    answer({"proxies": found}, as_json, lambda: say_proxies(found))


def drain_proxy(
    proxy_id: ProxyId,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    as_json: options.Json = False,
) -> None:
    """Have a proxy let its clients go, between requests and spread over time; then it leaves and ends."""
    found = options.ask(topom, token, lambda client: client.drain_proxy(proxy_id))

    def tell() -> None:
        clients = found.get("counters", {}).get("clients", 0)
        say(f"proxy {proxy_id} at {found['address']} drains: {clients} clients; it leaves the list in the end")
        if found["state"] == "lost":
            say("it has not been heard of lately; it is told when it comes back")

    answer(found, as_json, tell)


def remove_proxy(
    proxy_id: ProxyId,
    force: Annotated[
        bool, typer.Option("--force", help="Remove it even if a Redis server cannot be reached to cut the proxy off.")
    ] = False,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    as_json: options.Json = False,
) -> None:
    """Cut a proxy off all Redis servers and forget it. A proxy that still runs registers again."""
    found = options.ask(topom, token, lambda client: client.remove_proxy(proxy_id, force))

    def tell() -> None:
        say(f"proxy {proxy_id} removed")
        for address, reason in found.get("not_fenced", {}).items():
            say(f"it could not be cut off {address}: {reason}")

    answer(found, as_json, tell)
