"""The proxies: which take part in the barrier, which were heard of lately, and what each has acknowledged.

A proxy is a member from the moment it is in the store, before it is sent its first table, until it leaves or is fenced.
**drained** and **one-owner** rest on this: topom waits for each proxy that may send commands to a server, or cuts it
off from the servers first. Silence or a lost connection does not end membership; only a fence does.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import structlog

from slots.messages.control import Drain, Register
from slots.messages.control import Refused as Refusal
from slots.messages.message import sentence
from topom.cluster import fences, lineage
from topom.cluster.events import What
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState, Marked, ProxyRecord
from topom.errors import ProxyNotFound, TooMany
from topom.proxies import standdown
from topom.proxies.member import Link, Member, Refused
from topom.proxies.newest import NewestStore, NotSettled, UsedBy

log = structlog.get_logger(__name__)

REGISTRATION_SECONDS = 4.0
"""How long a registration waits at most; a proxy waits for a little longer for the answer."""
RULES_CHANGE = "its version does not know of changes of the slot rules"
FencedBy = Callable[[Collection[str]], Awaitable[Mapping[str, Collection[str]]]]
"""Gives who has fenced these instances, by server (:meth:`topom.servers.redis_servers.RedisServers.fenced_by`)."""


class Wait:
    """A barrier under way: which proxies have not acknowledged ``epoch``, and which refused it."""

    def __init__(self, epoch: int, pending: set[int]) -> None:
        self.epoch = epoch
        self.pending = pending
        self.refusals: dict[int, str] = {}
        self.event = asyncio.Event()
        """Set when there is something to look at: no proxy is missing, one has refused, or one is lost."""


class Members:
    """All members, in step with the store: a ledger's listener adds and drops each as soon as that is stored."""

    def __init__(
        self,
        ledger: Ledger,
        lease_seconds: float,
        stand_down: float | None = None,
        fenced_by: FencedBy | None = None,
        used_by: UsedBy | None = None,
    ) -> None:
        self._ledger = ledger
        self.fenced_by = fenced_by
        """Asks the servers; None for no question."""
        self.stand_down = stand_down
        """The allowance by which proxies stand down (:mod:`topom.proxies.standdown`); None if they need not."""
        self.lease_seconds = lease_seconds
        self._members: dict[int, Member] = {}
        self._waits: set[Wait] = set()
        self._began = 0.0
        """When :meth:`start` took the members, in seconds of the event loop's clock."""
        self.newest = NewestStore(
            ledger, lambda: [one.named for one in self.all() if not one.met and not one.lost], used_by
        )
        """What proxies have said of the store."""
        self.refused_epoch = 0
        """The newest epoch that a proxy could not apply."""
        self._refusal_listeners: list[Callable[[], None]] = []

    def listen_refusals(self, hear: Callable[[], None]) -> None:
        """Call ``hear`` from now on each time a proxy could not apply a table."""
        self._refusal_listeners.append(hear)

    def start(self) -> None:
        """Take the stored members; each has one lease from now to come back."""
        now = self._began = self._now()
        self._members = {record.id: Member(record, now) for record in self._ledger.state.proxies.values()}
        self._ledger.listen(self._changed)

    def all(self) -> list[Member]:
        """Every member, by id."""
        # Pages are written on threads, while members come and go.
        return [member for _, member in sorted(self._members.items())]

    def get(self, proxy_id: int) -> Member:
        """The member of that id. Raises :class:`~topom.errors.ProxyNotFound`."""
        member = self._members.get(proxy_id)
        if member is None:
            raise ProxyNotFound(f"there is no proxy {proxy_id}")
        return member

    async def register(self, registration: Register, link: Link) -> Member:
        """Make the sender a member, or take a member's new connection.

        Raises:
            Refused: the instance was fenced, or there are too many proxies, or the proxy knows a newer table, or one of
                another cluster; or it is not known yet whether others know a newer one.
            StoreError: the membership could not be stored; the proxy has to try again.
        """
        try:
            self.newest.hear(registration.known, f"the proxy at {registration.address} on {registration.hostname}")
            if all(one.record.instance != registration.instance for one in self._members.values()):
                # newest-store: a fenced or new one may know an older table than this one, and others a newer one.
                await self.newest.settled_within(REGISTRATION_SECONDS)
                await self._hear_fences(registration)
        except (lineage.AnotherCluster, lineage.NotSealed, lineage.StoreIsOlder, NotSettled) as error:
            raise Refused("invalid", str(error)) from error
        if registration.epoch > self._ledger.table.epoch:
            raise Refused(
                "invalid",
                f"the proxy has a table of epoch {registration.epoch}, and this topom is only at "
                f"{self._ledger.table.epoch}: it is another product's topom, or its store was lost",
            )

        try:
            await self._ledger.change(lambda state, _: self._joined(state, registration))
        except TooMany as error:
            raise Refused("invalid", str(error)) from error
        member = next((one for one in self._members.values() if one.record.instance == registration.instance), None)
        if member is None:  # it was fenced or removed right after it was stored
            raise Refused("fenced", "this instance was fenced off the servers; come back under a new one")
        if member.link is not None:
            member.link.end(None)
        member.link = link
        member.met = True
        self.newest.spoke()
        member.drains_itself = registration.draining
        member.cluster = registration.cluster
        member.changes_rules = registration.changes_rules
        member.users = None
        self.heard(member)
        log.info("proxy_registered", proxy=member.record.id, address=registration.address, epoch=registration.epoch)
        return member

    def _joined(self, state: ClusterState, registration: Register) -> ClusterState:
        """The state with the sender as a member. Raises :class:`Refused`."""
        if registration.instance in state.fenced:
            raise Refused("fenced", "this instance was fenced off the servers; come back under a new one")
        if state.table.coming is not None and not registration.changes_rules:
            raise Refused(
                "invalid", f"slot rules are being changed, and {RULES_CHANGE}; it registers when that is over"
            )
        known = next((proxy for proxy in state.proxies.values() if proxy.instance == registration.instance), None)
        if known is None and registration.registered_before:
            # final-fence: the proxy itself says that it was registered, so topom need not remember fences that are
            # done.
            raise Refused("fenced", "this instance is no member any more; come back under a new one")
        record = ProxyRecord(
            id=known.id if known else state.next_proxy_id,
            instance=registration.instance,
            address=registration.address,
            hostname=registration.hostname,
            pid=registration.pid,
            workers=registration.workers,
            version=registration.version,
            draining=registration.draining or bool(known and self._has_yet_to_drain(known, registration)),
            stand_down=standdown.registered(self.stand_down, registration.stands_down),
        )
        if record == known:
            return state
        return replace(
            state,
            proxies={**state.proxies, record.id: record},
            next_proxy_id=max(state.next_proxy_id, record.id + 1),
        )

    def counts(self, member: Member) -> bool:
        """Whether a proxy may be told now that it is a member and not fenced (:mod:`topom.proxies.standdown`)."""
        return self._ledger.may_change and member.record.id in self._ledger.state.proxies

    def missed(self, member: Member, seconds: float) -> bool:
        """Whether it is lost, or has been silent for so long."""
        return member.lost or self._now() - member.heard_at > seconds

    def heard(self, member: Member) -> None:
        """A message came from this proxy: its lease begins anew."""
        member.heard_at = self._now()
        if member.lost:
            member.lost = False
            log.info("proxy_back", proxy=member.record.id)
            self._ledger.note(What.PROXY_BACK, f"{member.named} was heard of again")

    def acknowledge(self, member: Member, epoch: int) -> None:
        """The proxy applies the table of ``epoch``. That acknowledges all tables before it, too."""
        if epoch > self._ledger.table.epoch:
            # No proxy can apply a table that does not exist yet. If topom believed it, a later lock could pass the
            # barrier although the proxy has not seen it.
            log.error("ack_of_unknown_epoch", proxy=member.record.id, epoch=epoch, newest=self._ledger.table.epoch)
            return
        member.acked = max(member.acked, epoch)
        for wait in self._waits:
            if member.acked >= wait.epoch and member.record.id in wait.pending:
                wait.pending.discard(member.record.id)
                wait.refusals.pop(member.record.id, None)
                if not wait.pending:
                    wait.event.set()

    def refuse(self, member: Member, epoch: int, reason: str) -> None:
        """The proxy could not apply the table of ``epoch``. It acknowledges neither that one nor any since the last
        that it acknowledged.
        """
        if epoch > self._ledger.table.epoch:
            # As with an acknowledgement: if topom believed it, the proxy would refuse all tables to come up to that
            # epoch.
            log.error("nack_of_unknown_epoch", proxy=member.record.id, epoch=epoch, newest=self._ledger.table.epoch)
            return
        log.warning("proxy_nack", proxy=member.record.id, epoch=epoch, reason=reason)
        member.refused = max(member.refused, (epoch, reason))
        self.refused_epoch = max(self.refused_epoch, epoch)
        for hear in self._refusal_listeners:
            hear()
        for wait in self._waits:
            if epoch >= wait.epoch and member.record.id in wait.pending:
                wait.refusals[member.record.id] = reason
                wait.event.set()

    def is_news(self, member: Member, draining: bool, stand_down: float | None) -> bool:
        """Whether a proxy's heartbeat says something that has to be stored."""
        if draining and not (member.drains_itself and member.record.draining):
            return True
        return stand_down is not None and stand_down == self.stand_down != member.record.stand_down

    async def stands_down(self, member: Member, seconds: float | None) -> None:
        """A proxy says that it stands down by this allowance. That is stored once it is the one that topom tells."""
        proxy_id = member.record.id

        def note(state: ClusterState, epoch: int) -> ClusterState:
            record = state.proxies.get(proxy_id)
            if record is None or record.stand_down == seconds:
                return state
            return replace(state, proxies={**state.proxies, proxy_id: replace(record, stand_down=seconds)})

        if seconds is not None and seconds == self.stand_down != member.record.stand_down:
            await self._ledger.change(note)

    def disconnected(self, member: Member, link: Link) -> None:
        """The connection ended. Membership goes on until the lease ends and a fence is up."""
        if member.link is link:
            member.link = None
            log.info("proxy_disconnected", proxy=member.record.id)

    async def drain(self, proxy_id: int) -> Member:
        """Tell a proxy to let its clients go and leave. That is stored first, so a proxy without a connection is told
        later.

        Raises :class:`~topom.errors.ProxyNotFound`.
        """
        member = self.get(proxy_id)
        await self._note_draining(member)
        if member.link is not None:
            member.link.say(Drain())
        return member

    async def drains(self, member: Member) -> None:
        """Note that a proxy says that it drains, if that is news."""
        member.drains_itself = True
        await self._note_draining(member)

    async def _note_draining(self, member: Member) -> None:
        proxy_id = member.record.id

        def note(state: ClusterState, epoch: int) -> ClusterState:
            record = state.proxies.get(proxy_id)
            if record is None or record.draining:
                return state
            return replace(state, proxies={**state.proxies, proxy_id: replace(record, draining=True)})

        if not member.record.draining:
            await self._ledger.change(note)
            log.info("proxy_drains", proxy=proxy_id, address=member.record.address)

    async def leave(self, member: Member) -> None:
        """The proxy has drained its workers and ended them: nothing of it is left, and no barrier waits for it."""
        proxy_id = member.record.id
        await self._ledger.change(
            lambda state, epoch: (
                replace(state, proxies=_without(state.proxies, [proxy_id])) if proxy_id in state.proxies else state
            )
        )

    async def fence(self, proxy_ids: Iterable[int], reason: str, message: str, only_lost: bool) -> None:
        """End memberships for good, and remember that the instances have to be fenced off the servers.

        This is stored before any server is touched. So a topom that restarts in between knows of it, and the proxy
        cannot come back under the same instance. With ``only_lost``, a proxy that was heard of meanwhile stays.
        """
        wanted = list(proxy_ids)

        def part(state: ClusterState, epoch: int) -> ClusterState:
            parting = [
                self._members[proxy_id]
                for proxy_id in wanted
                if proxy_id in self._members and (self._members[proxy_id].lost or not only_lost)
            ]
            if not parting:
                return state
            for member in parting:
                member.parting = (reason, message)
            return replace(
                fences.added(state, [state.proxies[member.record.id] for member in parting]),
                proxies=_without(state.proxies, [member.record.id for member in parting]),
            )

        await self._ledger.change(part)

    async def fenced_at(self, done: Mapping[str, Marked]) -> None:
        """Remember which fences these servers have, and forget fences that are up everywhere."""
        await self._ledger.change(lambda state, epoch: fences.set_at(state, done))

    def missing(self, epoch: int) -> list[Member]:
        """Members that have not acknowledged ``epoch``, by id."""
        return [member for member in self.all() if member.acked < epoch]

    @contextmanager
    def waiting(self, epoch: int) -> Iterator[Wait]:
        """A :class:`Wait` that is kept up to date inside the ``with`` block."""
        missing = self.missing(epoch)
        wait = Wait(epoch, {member.record.id for member in missing})
        # A proxy may refuse before the task that stored the table begins to wait.
        wait.refusals = {member.record.id: member.refused[1] for member in missing if member.refused[0] >= epoch}
        self._waits.add(wait)
        try:
            yield wait
        finally:
            self._waits.discard(wait)

    def allow(self, seconds: float) -> None:
        """Let every lease end so much later: this process was held up, and heartbeats wait unread."""
        self._began += seconds
        for member in self._members.values():
            member.heard_at += seconds

    def lose_silent(self) -> list[Member]:
        """Note as lost the members whose lease has ended; gives all that are lost now, by id."""
        now = self._now()
        for member in self._members.values():
            if not member.lost and now - member.heard_at > self.lease_seconds:
                self._lose(member)
        if now - self._began > self.lease_seconds:
            self.newest.over()
        return [member for member in self.all() if member.lost]

    def _lose(self, member: Member) -> None:
        member.lost = True
        self.newest.lost()
        log.warning("proxy_lost", proxy=member.record.id, address=member.record.address, acked=member.acked)
        self._ledger.note(What.PROXY_LOST, f"{member.named} was not heard of for {self.lease_seconds:g} s")
        for wait in self._waits:
            if member.record.id in wait.pending:
                wait.event.set()

    async def _hear_fences(self, registration: Register) -> None:
        """newest-store: a process takes another identity once it has seen its fence, and its marks say whose that is.

        Raises as :meth:`NewestStore.hear`.
        """
        place = registration.address, registration.hostname, registration.pid
        former = [
            one.record.instance
            for one in self._members.values()
            if (one.record.address, one.record.hostname, one.record.pid) == place
        ]
        if self.fenced_by is not None and former:
            self.newest.hear_fences(await self.fenced_by(former))

    def _has_yet_to_drain(self, known: ProxyRecord, registration: Register) -> bool:
        """Whether a process that says it does not drain was told to, and has only lost its control stream."""
        # A new start has another process id. In a container it may have the same one, but there the process before had
        # begun to drain.
        begun = known.id in self._members and self._members[known.id].drains_itself
        return known.draining and not begun and (known.hostname, known.pid) == (registration.hostname, registration.pid)

    def _changed(self, old: ClusterState, new: ClusterState) -> None:
        if old.proxies is not new.proxies:
            for proxy_id in self._members.keys() - new.proxies.keys():
                self._drop(self._members.pop(proxy_id), new)
                self.newest.lost()
            for proxy_id, record in new.proxies.items():
                member = self._members.get(proxy_id)
                if member is None:
                    member = self._members[proxy_id] = Member(record, self._now())
                    # drained: a new member is sent the current table, and counts in every barrier under way.
                    for wait in self._waits:
                        wait.pending.add(proxy_id)
                member.record = record
        if old.table is not new.table:
            for member in self._members.values():
                if member.link is not None:
                    member.link.wake()

    def _drop(self, member: Member, state: ClusterState) -> None:
        if member.link is not None and member.record.instance in state.fenced:
            reason, message = member.parting
            member.link.end(Refusal(reason=reason, message=sentence(message)))
        log.info("proxy_gone", proxy=member.record.id, fenced=member.record.instance in state.fenced)
        for wait in self._waits:
            wait.pending.discard(member.record.id)
            wait.refusals.pop(member.record.id, None)
            wait.event.set()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _without(proxies: Mapping[int, ProxyRecord], proxy_ids: Iterable[int]) -> dict[int, ProxyRecord]:
    gone = set(proxy_ids)
    return {proxy_id: record for proxy_id, record in proxies.items() if proxy_id not in gone}
