"""What is stored of a large cluster after years: made as topom makes it, without a network.

1,000 groups of three servers, each with a node and a datacenter; slots scattered over the groups, all of which have
moved; proxies of which tens of thousands came, left, or were lost and fenced.
"""

import math
import random
from dataclasses import replace

from slots.group import Group
from slots.messages.message import Product
from slots.slot import Slot
from slots.table import SlotTable
from topom.cluster import fences
from topom.cluster.events import Event, What
from topom.cluster.state import ClusterState, Marked, Noted, ProxyRecord

SERVERS_A_GROUP = 3
YEARS_SECONDS = 10 * 365 * 86_400
NOW = 1_800_000_000.0
EVENTS = 2048
FENCED = 0.1
"""Which part of the proxies that went was lost, and fenced; the others left."""


def product(slots: int) -> Product:
    """What all proxies agree on."""
    return Product(name="slotferry", number_of_slots=slots, slot_function="crc32", databases=16)


def address_of(number: int, port: int) -> str:
    """Of the server of that number, on the loopback network: one process answers for all."""
    return f"127.{1 + number // 60_000}.{number // 250 % 240}.{number % 250 + 1}:{port}"


def number_of(host: str) -> int:
    """The reverse of :func:`address_of`."""
    _, first, second, third = (int(part) for part in host.split("."))
    return (first - 1) * 60_000 + second * 250 + third - 1


def run_id_of(number: int) -> str:
    """Of the process of a server."""
    return f"{random.Random(number).getrandbits(160):040x}"


def data_of(group: int) -> str:
    """The id that a group's data is known by."""
    return run_id_of(1_000_000 + group)[:32]


def grown(
    groups: int = 1000,
    slots: int = 16_384,
    proxies: int = 1000,
    gone: int = 30_000,
    port: int = 6379,
    seconds: float = YEARS_SECONDS,
) -> ClusterState:
    """The state of a cluster after so long.

    Args:
        groups: of three servers each.
        slots: over all groups.
        proxies: members now.
        gone: proxies that were members, and are none any more.
        port: of all servers.
        seconds: since the first slot moved.
    """
    chance = random.Random(1)
    table = SlotTable(
        1, tuple(Slot(number, chance.randint(1, groups)) for number in range(slots)), _groups(groups, port)
    )
    state = ClusterState(1, "0" * 32, product(slots), table, assigned=True)
    addresses = [server for group in table.groups.values() for server in group.servers]
    state = replace(
        state,
        run_ids={server: run_id_of(number) for number, server in enumerate(addresses)},
        offsets={
            group.id: Noted(group.servers[0], run_id_of(-group.id), chance.getrandbits(44))
            for group in table.groups.values()
        },
        data_ids={group: data_of(group) for group in table.groups},
        moved={slot: math.floor(NOW - seconds * chance.random()) for slot in range(slots)},
        priorities=dict.fromkeys(addresses, 100),
    )
    return _with_proxies(state, proxies, gone, addresses, chance)


def _groups(count: int, port: int) -> dict[int, Group]:
    found = {}
    for number in range(count):
        servers = tuple(address_of(SERVERS_A_GROUP * number + place, port) for place in range(SERVERS_A_GROUP))
        found[number + 1] = Group(
            number + 1,
            servers,
            {server: f"zone-{place}" for place, server in enumerate(servers)},
            nodes=dict.fromkeys(servers, f"rack-{number % 50:02d}-node-{number:04d}"),
        )
    return found


def _with_proxies(
    state: ClusterState, proxies: int, gone: int, servers: list[str], chance: random.Random
) -> ClusterState:
    """So many members, after so many others came and went: each step as topom stores it."""
    members: list[ProxyRecord] = []
    for number in range(1, gone + proxies + 1):
        record = ProxyRecord(
            number,
            f"{chance.getrandbits(128):032x}",
            f"10.{number // 60_000}.{number // 250 % 240}.{number % 250 + 1}:6380",
            f"proxy-{number}.cache.example.com",
            chance.randint(2, 4_194_304),
            4,
            "0.1.0",
            stand_down=5.0,
        )
        members.append(record)
        if number <= proxies:
            continue
        leaves = members.pop(chance.randrange(len(members)))
        if chance.random() < FENCED:
            state = fences.added(state, [leaves])
            if len(state.fenced) == 10:
                # Each server but one that is down has confirmed them; then that one, too.
                done = {server: Marked(run_id_of(place), state.last_fence) for place, server in enumerate(servers)}
                state = fences.set_at(state, done)
    # One more is lost while a server is down: its fence cannot be finished.
    old = replace(state, proxies={record.id: record for record in members}, next_proxy_id=gone + proxies + 1)
    old = fences.added(old, [replace(members[0], id=gone + proxies, instance=f"{chance.getrandbits(128):032x}")])
    up = {server: Marked(run_id_of(place), old.last_fence) for place, server in enumerate(servers[:-1])}
    old = fences.set_at(old, {**up, servers[-1]: Marked(run_id_of(len(servers) - 1), old.last_fence - 1)})
    version = 3 * (gone + proxies)
    table = replace(old.table, epoch=version - 1)
    return _with_events(replace(old, version=version, table=table))


def _with_events(state: ClusterState) -> ClusterState:
    """As many events as are kept, of the proxies that came last."""
    records = list(state.proxies.values())
    events = []
    for number in range(EVENTS):
        record = records[number % len(records)]
        text = f"proxy {record.id} ({record.address} on {record.hostname}) was not heard of for 5 s"
        events.append(Event(1 + number, NOW, "topom 01234567", What.PROXY_LOST, text, 1, 1))
    return replace(state, events=tuple(events))
