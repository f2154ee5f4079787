"""From the table over groups to steps: the planner says on which nodes copies are, this module with which servers.

The planner counts copies and knows no servers. It may want a copy on a node that has no server left in the pool. Then a
missing copy goes to another node that has one, and a copy that would only be moved stays where it is. Sentences say
what cannot be done. Pure.

If only a part of a plan can be done, it begins only if that leaves less to do afterwards: first fewer missing copies,
then fewer copies to move, then fewer promotions. So plans come to an end, with any set of servers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slots.group import Group
from topom.cluster.placement_run import Step
from topom.cluster.state import ClusterState
from topom.placement.picture import LEAVES, Picture
from topom.placement.planner import Copies, Copy, Placement, Promotion, Round, Rules, place
from topom.reasons import Kind, Reason


@dataclass(frozen=True, slots=True)
class Planned:
    """What a placement would change.

    Attributes:
        steps: the steps by round.
        missing: what cannot be done, and what that needs.
        target: the nodes of each group once all is done, by group.
    """

    steps: tuple[Step, ...] = ()
    missing: tuple[Reason, ...] = ()
    target: Mapping[int, Copies] = field(default_factory=dict)


def plan(state: ClusterState, picture: Picture, rules: Rules) -> Planned:
    """The steps to a placement as the rules want it, if there are servers for them."""
    missing = list(picture.left_out.values())
    if not picture.nodes or not picture.table:
        nothing = Reason(Kind.OPERATOR, "no group can be placed: there is none that could, or no node is there")
        return Planned(missing=(*missing, nothing))
    placed = place(list(picture.nodes.values()), picture.table, rules)
    making = _made(state, picture, missing, placed)
    partly = bool(making.steps) and making.target != placed.table
    if partly and _left(picture, making.target, rules) >= _left(picture, picture.table, rules):
        making = _made(state, picture, missing, _what_lacks(placed, picture))
        what = "nothing is moved and nobody promoted as long as the rest cannot be done: it would have to be taken back"
        missing.append(Reason(Kind.BUSY, what))
    making.retire(len(placed.rounds) + 1, placed, rules)
    nodes = len(picture.nodes)
    if rules.replicas > nodes:
        those = "1 node is" if nodes == 1 else f"{nodes} nodes are"
        what = f"{rules.replicas} copies of each group are wanted, and only {those} there"
        missing.append(Reason(Kind.OPERATOR, what))
    for group_id, copies in making.target.items():
        if len(copies.holders) > rules.replicas:
            what = (
                f"group {group_id} has copies on {len(copies.holders)} nodes, and {rules.replicas} are wanted; none is "
                "removed by itself"
            )
            missing.append(Reason(Kind.OPERATOR, what, to_do="slotferry server remove"))
    if together := _together(picture, making.target):
        what = (
            f"{'groups' if together[1:] else 'group'} {', '.join(map(str, together))}: copies share a datacenter, for "
            "in the others no node may be given more (placement_watermark_percent) or no server is left in the pool"
        )
        missing.append(Reason(Kind.OPERATOR, what))
    return Planned(tuple(making.steps), tuple(dict.fromkeys(missing)), making.target)


def _made(state: ClusterState, picture: Picture, missing: list[Reason], placed: Placement) -> _Making:
    making = _Making(state, picture, missing)
    for number, one in enumerate(placed.rounds, 1):
        for promotion in one.promotions:
            making.promote(number, promotion)
        for copy in one.copies:
            making.copy(number, copy)
        making.end_round()
    return making


def _left(picture: Picture, table: Mapping[int, Copies], rules: Rules) -> tuple[int, int, int]:
    """What is left to do from this table: missing copies, all copies, promotions."""
    nodes = list(picture.nodes.values())
    placed = place(nodes, table, rules)
    wanted = min(rules.replicas, len(nodes))
    missing = sum(max(wanted - len(copies.holders), 0) for copies in table.values())
    return missing, placed.leader_copies + placed.follower_copies, placed.promotions


def _together(picture: Picture, table: Mapping[int, Copies]) -> list[int]:
    """Groups whose copies are in fewer datacenters than they could be without limits."""
    where = {name: node.datacenter for name, node in picture.nodes.items()}
    number = len(set(where.values()))
    found = []
    for group_id, copies in table.items():
        places = [where[node] for node in copies.holders if node in where]
        if len(set(places)) < min(len(places), number):
            found.append(group_id)
    return found


def _what_lacks(placed: Placement, picture: Picture) -> Placement:
    """Only the missing leaders and copies of a placement; all of them are in its first round."""
    first = placed.rounds[0]
    leaderless = {group_id for group_id, copies in picture.table.items() if not copies.leader}
    promotions = tuple(one for one in first.promotions if one.slot in leaderless)
    copies = tuple(one for one in first.copies if not one.instead_of)
    return Placement(placed.table, (Round(promotions, copies),))


class _Making:
    """Makes the steps, and keeps what is left of the pool."""

    def __init__(self, state: ClusterState, picture: Picture, missing: list[Reason]) -> None:
        self.steps: list[Step] = []
        self.target = dict(picture.table)
        self._groups = state.table.groups
        self._picture = picture
        self._missing = missing
        self._free = {node: list(servers) for node, servers in picture.free.items()}
        self._freed: list[tuple[str, str]] = []
        self._blocked: set[int] = set()
        # The server that will be there, by group and node.
        self._placed: dict[tuple[int, str], str] = {}

    def promote(self, number: int, promotion: Promotion) -> None:
        """Make the server of a follower the master."""
        group = self._groups[promotion.slot]
        server = self._server_on(group, promotion.node)
        if promotion.slot in self._blocked or server is None:
            self._blocked.add(promotion.slot)
            return
        self.steps.append(Step(number, promotion.slot, "promote", promotion.node, server))
        before = self.target[promotion.slot]
        followers = tuple(node for node in before.holders if node != promotion.node)
        self.target[promotion.slot] = Copies(promotion.node, followers)

    def copy(self, number: int, copy: Copy) -> None:
        """Make a server of the pool a replica, on this node or another one."""
        group_id = copy.slot
        if group_id in self._blocked:
            return
        node, server = copy.node, self._take(copy.node)
        if server is None and not copy.instead_of:
            node, server = self._elsewhere(group_id)
            if server is not None:
                # The planner's further steps for this group rely on the other node, so they cannot be done.
                self._blocked.add(group_id)
        if server is None:
            self._blocked.add(group_id)
            self._say_missing(copy)
            return
        group = self._groups[group_id]
        old = tuple(one for one in group.servers if copy.instead_of and group.node_of(one) == copy.instead_of)
        if copy.instead_of and (group_id, copy.instead_of) in self._placed:
            old = (*old, self._placed[group_id, copy.instead_of])
        # If no leader is moved, the old master goes once another one leads.
        self.steps.append(Step(number, group_id, "copy", node, server, copy.leads, old))
        self._placed[group_id, node] = server
        self._freed += [(copy.instead_of, one) for one in old]
        before = self.target[group_id]
        holders = [one for one in before.holders if one != copy.instead_of]
        leader = node if copy.leads else before.leader
        self.target[group_id] = Copies(leader, tuple(one for one in (*holders, node) if one != leader))

    def end_round(self) -> None:
        """Let servers that leave a group in this round be taken in the next one."""
        for node, server in self._freed:
            if node in self._picture.nodes:
                self._free.setdefault(node, []).append(server)
        self._freed = []

    def retire(self, number: int, placed: Placement, rules: Rules) -> None:
        """Let servers that have failed or leave go to the pool, if their group then has all wanted copies."""
        for group_id, servers in self._picture.gone.items():
            group = self._groups[group_id]
            former = () if self._picture.table[group_id].leader else group.servers[:1]
            whole = len(self.target[group_id].holders)
            if whole < min(rules.replicas, len(self._picture.nodes)) or not self.target[group_id].leader:
                continue
            for server in (*former, *servers):
                node = group.node_of(server)
                if whole < rules.replicas and not LEAVES.says(self._picture.absent.get(node)):
                    # The server may come back before there is another one, and then it has most of the data.
                    continue
                if not any(server in step.instead_of for step in self.steps):
                    self.steps.append(Step(number, group_id, "retire", node, server, keep=whole))

    def _server_on(self, group: Group, node: str) -> str | None:
        placed = self._placed.get((group.id, node))
        there = [one for one in group.servers if group.node_of(one) == node and one not in self._picture.gone[group.id]]
        return placed or next(iter(there), None)

    def _take(self, node: str) -> str | None:
        servers = self._free.get(node)
        return servers.pop(0) if servers else None

    def _elsewhere(self, group_id: int) -> tuple[str, str | None]:
        """The best node for a copy, of those with a server in the pool and no copy of the group; and that server.

        Nodes in datacenters without a copy of the group come first, and of these the node with the fewest copies.
        """
        holders = self.target[group_id].holders
        places = {self._picture.nodes[node].datacenter for node in holders if node in self._picture.nodes}
        held: dict[str, int] = {}
        for copies in self.target.values():
            for node in copies.holders:
                held[node] = held.get(node, 0) + 1
        able = [node for node, servers in self._free.items() if servers and node not in holders]
        able = [node for node in able if node in self._picture.nodes]
        if not able:
            return "", None
        node = min(able, key=lambda one: (self._picture.nodes[one].datacenter in places, held.get(one, 0), one))
        return node, self._take(node)

    def _say_missing(self, copy: Copy) -> None:
        wanted = (
            f"group {copy.slot} is to have a copy on node {copy.node} instead of {copy.instead_of}"
            if copy.instead_of
            else f"group {copy.slot} lacks a copy, which is to be on node {copy.node}"
        )
        what = f"{wanted}, and no server is left in the pool there"
        to_do = f"add one: slotferry pool add HOST:PORT --node {copy.node}"
        self._missing.append(Reason(Kind.OPERATOR, what, to_do=to_do))
