"""SOFARegistry's way to place leaders and followers, written down again to compare ours with; for tests only.

What its meta server does once a second, until nothing changes: slots that lack a copy are *assigned*, all at once;
else the table is *balanced*, a few changes at a time, and only the first of five kinds of change that finds anything to
do is made. A leader that is replaced does not stay as a follower, so its slot lacks a copy until the next assignment.

Where SOFARegistry leaves an order to a hash table, the smallest slot or name comes first here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Table = dict[int, tuple[str, tuple[str, ...]]]
"""Leader and followers by slot."""

ENDLESS = 2_000
"""Rounds after which a table is said not to come to rest."""


@dataclass
class Tally:
    """What was done, counted as it was done.

    Attributes:
        rounds: those that changed anything.
        restless: whether the scheme was still changing things after :data:`ENDLESS` rounds.
    """

    rounds: int = 0
    promotions: int = 0
    leader_copies: int = 0
    follower_copies: int = 0
    restless: bool = False


@dataclass
class Scheme:
    """A table in SOFARegistry's hands."""

    replicas: int
    number_of_slots: int
    leader_changes: int = 6
    follower_changes: int = 10
    percent: int = 10
    leader: dict[int, str] = field(default_factory=dict)
    followers: dict[int, set[str]] = field(default_factory=dict)
    nodes: list[str] = field(default_factory=list)
    leads: dict[str, set[int]] = field(default_factory=dict)
    follows: dict[str, set[int]] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)

    def arrange(self, nodes: Iterable[str], table: Mapping[int, tuple[str, tuple[str, ...]]]) -> tuple[Table, Tally]:
        """The table at rest for these nodes, and what it took."""
        self.nodes = sorted(nodes)
        self.tally = Tally()
        known = set(self.nodes)
        self.leads = {node: set() for node in self.nodes}
        self.follows = {node: set() for node in self.nodes}
        self.leader, self.followers = {}, {slot: set() for slot in range(self.number_of_slots)}
        for slot, (leader, followers) in table.items():
            if leader in known:
                self.leader[slot] = leader
                self.leads[leader].add(slot)
            for follower in followers:
                if follower in known:
                    self._follow(slot, follower)
        while self.tally.rounds < ENDLESS:
            if not (self._assign() or self._balance()):
                break
            self.tally.rounds += 1
        self.tally.restless = self.tally.rounds >= ENDLESS
        return {
            slot: (self.leader[slot], tuple(sorted(self.followers[slot]))) for slot in range(self.number_of_slots)
        }, self.tally

    # The order of nodes.

    def _least_leading(self, names: Iterable[str]) -> list[str]:
        return sorted(names, key=lambda node: (len(self.leads[node]), len(self.follows[node]), node))

    def _most_leading(self, names: Iterable[str]) -> list[str]:
        return sorted(names, key=lambda node: (-len(self.leads[node]), -len(self.follows[node]), node))

    def _least_following(self, names: Iterable[str]) -> list[str]:
        return sorted(names, key=lambda node: (len(self.follows[node]), len(self.leads[node]), node))

    def _most_following(self, names: Iterable[str]) -> list[str]:
        return sorted(names, key=lambda node: (-len(self.follows[node]), -len(self.leads[node]), node))

    # Watermarks.

    def _high(self, total: int) -> int:
        return -(-(-(-total // len(self.nodes)) * (100 + self.percent)) // 100)

    def _low(self, total: int) -> int:
        return total // len(self.nodes) * (100 - self.percent) // 100

    # Changes.

    def _follow(self, slot: int, node: str) -> None:
        self.followers[slot].add(node)
        self.follows[node].add(slot)

    def _unfollow(self, slot: int, node: str) -> None:
        self.followers[slot].remove(node)
        self.follows[node].remove(slot)

    def _lead(self, slot: int, node: str) -> None:
        before = self.leader.get(slot)
        if before is not None:
            self.leads[before].remove(slot)
        if node in self.followers[slot]:
            self._unfollow(slot, node)
            self.tally.promotions += 1
        else:
            self.tally.leader_copies += 1
        self.leader[slot] = node
        self.leads[node].add(slot)

    # Assigning.

    def _assign(self) -> bool:
        lacking = {
            slot: missing
            for slot in range(self.number_of_slots)
            if (missing := self.replicas - 1 - len(self.followers[slot])) > 0
        }
        leaderless = [slot for slot in range(self.number_of_slots) if slot not in self.leader]
        changed = bool(leaderless)
        high = self._high(self.number_of_slots)
        leaderless.sort(key=lambda slot: (len(self.followers[slot]) or self.number_of_slots, slot))
        for slot in leaderless:
            chosen = self._least_leading(self.followers[slot])[:1]
            if not chosen or len(self.leads[chosen[0]]) >= high:
                chosen = self._least_leading(self.nodes)[:1]
            if chosen[0] in self.followers[slot]:
                lacking[slot] = lacking.get(slot, 0) + 1
            self._lead(slot, chosen[0])
        for slot in sorted(lacking, key=lambda slot: (-lacking[slot], slot)):
            for _ in range(lacking[slot]):
                free = set(self.nodes) - self.followers[slot] - {self.leader[slot]}
                if not free:
                    break
                self._follow(slot, self._least_following(free)[0])
                self.tally.follower_copies += 1
                changed = True
        return changed

    # Balancing.

    def _balance(self) -> bool:
        if self.replicas < 2:
            return self._balance_leaders_alone()
        return (
            self._promote_away_from_high()
            or self._prepare_promotions()
            or self._relieve_high_followers()
            or self._fill_low_followers()
            or self._promote_to_low()
        )

    def _leading_over(self, mark: int) -> list[str]:
        return self._most_leading(node for node in self.nodes if len(self.leads[node]) > mark)

    def _leading_under(self, mark: int) -> list[str]:
        return self._least_leading(node for node in self.nodes if len(self.leads[node]) < mark)

    def _balance_leaders_alone(self) -> bool:
        high, done = self._high(self.number_of_slots), 0
        while done < self.leader_changes and (over := self._leading_over(high)):
            free = self._least_leading(node for node in self.nodes if len(self.leads[node]) < high)
            if not free:
                break
            self._lead(min(self.leads[over[0]]), free[0])
            done += 1
        return done > 0

    def _promote_away_from_high(self) -> bool:
        high, done = self._high(self.number_of_slots), 0
        hopeless: set[str] = set()
        while done < self.leader_changes:
            over = self._leading_over(high)
            if hopeless.issuperset(over):
                break
            full = set(self._leading_over(high - 1))
            before = done
            for node in over:
                if node in hopeless:
                    continue
                by_follower: dict[str, list[int]] = {}
                for slot in sorted(self.leads[node]):
                    for follower in self.followers[slot] - full:
                        by_follower.setdefault(follower, []).append(slot)
                if not by_follower:
                    hopeless.add(node)
                    continue
                chosen = self._least_leading(by_follower)[0]
                self._lead(by_follower[chosen][0], chosen)
                done += 1
            if done == before:
                break
        return done > 0

    def _prepare_promotions(self) -> bool:
        high, done = self._high(self.number_of_slots), 0
        while done < self.follower_changes:
            over = self._leading_over(high)
            if not over:
                return False
            full, fresh, before = set(self._leading_over(high - 1)), set[str](), done
            for node in over:
                found = self._movable_follower(node, full, fresh)
                if found is None:
                    continue
                slot, old, new = found
                self._unfollow(slot, old)
                self._follow(slot, new)
                self.tally.follower_copies += 1
                fresh.add(new)
                done += 1
            if done == before:
                break
        return done > 0

    def _movable_follower(self, leader: str, full: set[str], fresh: set[str]) -> tuple[int, str, str] | None:
        by_follower: dict[str, list[int]] = {}
        for slot in sorted(self.leads[leader]):
            for follower in self.followers[slot] - fresh:
                by_follower.setdefault(follower, []).append(slot)
        for old in self._most_following(by_follower):
            for slot in by_follower[old]:
                for new in self._least_leading(set(self.nodes) - full):
                    if new != old and new not in self.followers[slot]:
                        return slot, old, new
        return None

    def _relieve_high_followers(self) -> bool:
        high, done = self._high(self.number_of_slots * (self.replicas - 1)), 0
        while done < self.follower_changes:
            over = self._most_following(node for node in self.nodes if len(self.follows[node]) > high)
            free = [node for node in self.nodes if len(self.follows[node]) < high]
            before = done
            for node in over:
                targets = [one for one in self._least_following(free) if len(self.follows[one]) < high]
                found = next(
                    (
                        (slot, target)
                        for slot in sorted(self.follows[node])
                        for target in targets
                        if slot not in self.leads[target] and slot not in self.follows[target]
                    ),
                    None,
                )
                if found is not None:
                    self._move(found[0], node, found[1])
                    done += 1
            if done == before:
                break
        return done > 0

    def _fill_low_followers(self) -> bool:
        low, done = self._low(self.number_of_slots * (self.replicas - 1)), 0
        while done < self.follower_changes:
            under = self._least_following(node for node in self.nodes if len(self.follows[node]) < low)
            before = done
            for node in under:
                found = next(
                    (
                        (slot, source)
                        for source in self._most_following(one for one in self.nodes if len(self.follows[one]) > low)
                        for slot in sorted(self.follows[source])
                        if slot not in self.leads[node] and slot not in self.follows[node]
                    ),
                    None,
                )
                if found is not None:
                    self._move(found[0], found[1], node)
                    done += 1
            if done == before:
                break
        return done > 0

    def _promote_to_low(self) -> bool:
        low, done = self._low(self.number_of_slots), 0
        hopeless: set[str] = set()
        while done < self.leader_changes:
            under = self._leading_under(low)
            if hopeless.issuperset(under):
                break
            poor, before = set(self._leading_under(low + 1)), done
            for node in under:
                if node in hopeless:
                    continue
                by_leader: dict[str, list[int]] = {}
                for slot in sorted(self.follows[node]):
                    if self.leader[slot] not in poor:
                        by_leader.setdefault(self.leader[slot], []).append(slot)
                if not by_leader:
                    hopeless.add(node)
                    continue
                self._lead(by_leader[self._most_leading(by_leader)[0]][0], node)
                done += 1
            if done == before:
                break
        return done > 0

    def _move(self, slot: int, old: str, new: str) -> None:
        self._unfollow(slot, old)
        self._follow(slot, new)
        self.tally.follower_copies += 1
