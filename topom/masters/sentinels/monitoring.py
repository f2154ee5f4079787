"""What each Sentinel should watch, and the commands that make it do so. Pure functions.

A Sentinel that names another master than the slot table is not corrected here: it may have seen a change that topom has
not seen yet (:mod:`topom.masters.sentinels.following`).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from slots.table import SlotTable
from topom.masters.sentinels.votes import majority_of

Command = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class SentinelSettings:
    """How Sentinels watch. Times are in milliseconds; a ``quorum`` of 0 is a majority.

    ``login`` has the options of SENTINEL SET with which they log in at the servers; empty if no password is needed.
    """

    quorum: int = 0
    down_after_milliseconds: int = 5_000
    failover_timeout_milliseconds: int = 60_000
    parallel_syncs: int = 1
    login: tuple[str, ...] = ()

    def options(self, known: int) -> dict[str, int]:
        """The options of SENTINEL SET, by name, if so many Sentinels are known."""
        return {
            "quorum": self.quorum or majority_of(known),
            "down-after-milliseconds": self.down_after_milliseconds,
            "failover-timeout": self.failover_timeout_milliseconds,
            "parallel-syncs": self.parallel_syncs,
        }


def name_of(product: str, group_id: int) -> str:
    """The name under which Sentinels know a group."""
    return f"{product}-{group_id}"


def group_id_of(product: str, name: str) -> int | None:
    """The group of that name; None if the name is not one of this product."""
    number = name.removeprefix(f"{product}-")
    if number == name or not (number.isascii() and number.isdigit()):
        return None
    return int(number)


def watched(table: SlotTable) -> dict[int, str]:
    """The masters, by group, of groups for which a Sentinel can do something: those with a replica.

    Locked groups are left out: their master is just being decided.
    """
    return {
        group.id: group.servers[0] for group in table.groups.values() if len(group.servers) > 1 and not group.locked
    }


def begin(name: str, host: str, port: int, options: Mapping[str, int], login: Sequence[str]) -> list[Command]:
    """The commands that make a Sentinel watch a master that it does not know."""
    return [("MONITOR", name, host, port, options["quorum"]), *_set(name, options, login)]


def superfluous(product: str, found: Collection[str], groups: Collection[int]) -> list[str]:
    """Names of this product that a Sentinel watches although the group is gone or has no replica."""
    return sorted(
        name for name in found if (group_id := group_id_of(product, name)) is not None and group_id not in groups
    )


def adjust(name: str, found: Mapping[str, str], options: Mapping[str, int], login: Sequence[str]) -> list[Command]:
    """The commands that give a watched master these options; ``found`` is what SENTINEL MASTERS says of it."""
    different = {option: value for option, value in options.items() if found.get(option) != str(value)}
    return _set(name, different, login)


def _set(name: str, options: Mapping[str, int], login: Sequence[str]) -> list[Command]:
    pairs: list[str | int] = [part for option in options.items() for part in option]
    pairs += login
    return [("SET", name, *pairs)] if pairs else []
