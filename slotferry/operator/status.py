"""``slotferry status``: an overview of the whole cluster."""

from slotferry.calls import Answer
from slotferry.operator import options
from slotferry.operator.looking import reasons_of, say_groups, say_migrators, say_proxies
from slotferry.operator.migration import say_migration
from slotferry.operator.pausing import say_pause
from slotferry.operator.protection import say_protection
from slotferry.output import answer, in_words, moment, say, table
from slots.counting import counted
from slots.forms import Form


def status(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", form: options.Output = Form.TABLE
) -> None:
    """Show the product: groups with their servers, proxies, slots, and slots that move."""
    found = options.ask(topom, token, lambda client: client.status())
    answer(found, form, lambda: _say_status(found))


def _say_status(found: Answer) -> None:
    slots = found["slots"]
    if found.get("reason"):
        say(f"NOTHING CAN BE CHANGED NOW: {in_words(found['reason'])}")
    if found.get("pause"):
        say_pause(found["pause"])
    say(
        f"product {found['product']}, epoch {found['epoch']}, {found['databases']} databases, "
        f"{found['number_of_slots']} slots by {found['slot_function']}: "
        f"{slots['assigned']} assigned, {slots['offline']} offline, {slots['moving']} moving"
    )
    if found.get("topoms"):
        say_topoms(found["topoms"])
    if found["groups"]:
        say_groups(found["groups"])
    for entry in found.get("leaving", []):
        waits = f"; {in_words(entry['reason'])}" if entry.get("reason") else ""
        say(f"{entry['kind']} {entry['id']} leaves: {entry['why']}{waits}")
    for group in found["groups"]:
        for sentence in reasons_of(group):
            say(sentence)
    if found["proxies"]:
        say_proxies(found["proxies"])
    if found.get("migrators"):
        say_migrators(found["migrators"])
    say_migration(found["migration"])
    for name, reason in found.get("failing", {}).items():
        say(f"topom: {name} failed and was started again: {in_words(reason)}; its log says more")
    for loop in found.get("loops", []):
        say(f"topom: {loop['name']}: {loop['says']}")
    if found.get("sentinels"):
        say(f"Sentinels: {in_words(found['sentinels'])}")
    protection = found.get("protection", {})
    if protection.get("active") or protection.get("lifted"):
        say_protection(found["protection"])
    for proxy in found["proxies"]:
        counters = proxy.get("counters", {})
        if counters.get("settings_refused"):
            say(f"proxy {proxy['id']}: its settings could not be used when they were read last; its log says why")
        if number := counters.get("settings_restart"):
            need, them = ("needs", "it") if number == 1 else ("need", "them")
            say(f"proxy {proxy['id']}: {counted(number, 'setting')} of its file {need} a restart; its log names {them}")
    if settings := found.get("settings"):
        _say_settings(settings)
    if step := next_step(found):
        say(f"next: {step}")


def _say_settings(settings: Answer) -> None:
    """Where topom's settings stand, if in a file, and what is the matter with it."""
    if settings["file"]:
        say(f"topom's settings: {settings['file']}, as of {moment(settings['since'])}")
    if settings["restart"]:
        say(f"topom's settings: these differ in the file, and need a restart: {', '.join(settings['restart'])}")
    if settings["refused"]:
        say(f"topom's settings: the file could not be used when it was read last: {settings['refused']}")


def next_step(found: Answer) -> str:
    """What a cluster lacks before it can serve; empty if it lacks nothing."""
    if not found["groups"]:
        return "name your Redis servers: slotferry group add 1 HOST:PORT"
    if not any(group["servers"] for group in found["groups"]):
        return f"give a group its servers: slotferry server add {found['groups'][0]['id']} HOST:PORT"
    if not found["slots"]["assigned"]:
        return f"give the groups their slots: slotferry slot assign 0-{found['number_of_slots'] - 1} --to GROUP"
    if not found["proxies"]:
        return "start a proxy that clients can connect to: slotferry proxy"
    return ""


def say_topoms(topoms: list[Answer]) -> None:
    """The topoms as a table, the leader first."""
    rows = [
        (
            topom["url"],
            topom["instance"][:8],
            topom["state"],
            topom.get("term"),
            topom.get("epoch"),
            topom.get("version") or None,
        )
        for topom in topoms
    ]
    table(("topom", "instance", "state", "term", "epoch", "version"), rows, title="topoms")
    for topom in topoms:
        if topom.get("reason"):
            say(f"topom {topom['url']}: {in_words(topom['reason'])}")
