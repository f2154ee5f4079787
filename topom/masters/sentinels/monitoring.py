"""What each Sentinel is to watch, and the commands that bring one to that. Pure functions.

A Sentinel that names another master than the slot table is not corrected here: it may have seen what topom has yet to
see (:mod:`topom.masters.sentinels.following`).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from slots.table import SlotTable
from topom.masters.sentinels.votes import majority_of

Command = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class SentinelSettings:
    """How Sentinels watch. Times are in milliseconds; a ``quorum`` of 0 is a majority.

    ``login`` are the options of SENTINEL SET by which they log in at the servers; none where that needs no password.
    """

    quorum: int = 0
    down_after_milliseconds: int = 5_000
    failover_timeout_milliseconds: int = 60_000
    parallel_syncs: int = 1
    login: tuple[str, ...] = ()

    def options(self, known: int) -> dict[str, int]:
        """Options of SENTINEL SET, by name, where so many Sentinels are known."""
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
    """The group of that name; None for one that is not this product's."""
    number = name.removeprefix(f"{product}-")
    if number == name or not (number.isascii() and number.isdigit()):
        return None
    return int(number)


def watched(table: SlotTable) -> dict[int, str]:
    """Masters by group, of the groups that a Sentinel can do something for: those with a replica.

    None that is locked: it is being decided who is its master.
    """
    return {
        group.id: group.servers[0] for group in table.groups.values() if len(group.servers) > 1 and not group.locked
    }


def begin(name: str, host: str, port: int, options: Mapping[str, int], login: Sequence[str]) -> list[Command]:
    """Have a Sentinel watch a master that it does not know."""
    return [("MONITOR", name, host, port, options["quorum"]), *_set(name, options, login)]


def superfluous(product: str, found: Collection[str], groups: Collection[int]) -> list[str]:
    """Names of this product that a Sentinel watches, of groups that are gone or have no replica any more."""
    return sorted(
        name for name in found if (group_id := group_id_of(product, name)) is not None and group_id not in groups
    )


def adjust(name: str, found: Mapping[str, str], options: Mapping[str, int], login: Sequence[str]) -> list[Command]:
    """Give a master that a Sentinel watches these options; ``found`` is what SENTINEL MASTERS says of it."""
    different = {option: value for option, value in options.items() if found.get(option) != str(value)}
    return _set(name, different, login)


def _set(name: str, options: Mapping[str, int], login: Sequence[str]) -> list[Command]:
    pairs: list[str | int] = [part for option in options.items() for part in option]
    pairs += login
    return [("SET", name, *pairs)] if pairs else []
