"""What holds at one worker: its identity, the table in force, and for how long it may use which groups.

Upholds **one-owner** and **final-fence**: what belongs to an identity counts under no other, and an identity that was
fenced off uses no server again.
"""

import asyncio
import time
from collections.abc import Callable

import structlog

from proxy.channel import Channel
from proxy.engine.requests import Loop
from proxy.engine.router import Router
from proxy.moving.migrating import KeyMover
from proxy.servers.backends import BackendOptions
from proxy.servers.ownconnections import OwnConnections
from proxy.worker.holding import FENCED_OFF, STOOD_DOWN, Holding
from proxy.worker.replicas.replicas import Replicas
from proxy.worker.routing import Routing
from slots.messages import channel as messages
from slots.messages.channel import SupervisorMessage
from slots.messages.message import sentence
from slots.slot import TableError
from slots.table import SlotTable

log = structlog.get_logger()


class InForce:
    """Takes what the supervisor says of it, and answers.

    Args:
        channel: to the supervisor.
        loop, options, router, replicas, holding, mover, own, routing: the worker's parts through which it is put in
            force.
        table_applied: called when another table is in force.
    """

    def __init__(
        self,
        channel: Channel[SupervisorMessage],
        loop: Loop,
        options: BackendOptions,
        router: Router,
        replicas: Replicas,
        holding: Holding,
        mover: KeyMover,
        own: OwnConnections,
        routing: Routing,
        table_applied: Callable[[SlotTable], None],
    ) -> None:
        self._channel = channel
        self._loop = loop
        self._options = options
        self._router = router
        self._replicas = replicas
        self._holding = holding
        self._mover = mover
        self._own = own
        self._routing = routing
        self._table_applied = table_applied
        self._confirmed_limit = False

    def take_table(self, message: messages.Table) -> bool:
        """Put a table in force; say whether it could be read."""
        content = message.table
        try:
            if "since" in content:
                if self._routing.table is None:
                    raise TableError("there is no table to apply changes to")
                table = self._routing.table.with_changes(content)
            else:
                table = SlotTable.from_wire(content)
        except TableError as error:
            log.warning("table_not_applied", reason=str(error))
            self._channel.send(messages.Resync())
            return False
        self._apply(table)
        return True

    def take_identity(self, message: messages.Identity) -> None:
        """Be another member from now on, with the table that came along."""
        # one-owner: with the old table, the new name could send commands to servers that no longer own the slots. So
        # the old connections end, the table that came along is put in force, and only then is anything opened again.
        # The mover comes last: a session that learns that its key did not move goes on at once.
        self._options.instance = message.instance
        self._options.incarnation = message.incarnation
        reason = "was left: this proxy was fenced off and takes a new identity; the command may or may not have run"
        for backend in self._router.shared_backends:
            backend.reset(reason)
        self._own.reset(reason)
        self._replicas.reset(reason)
        # by-action: the former identity's knowledge about moving slots does not hold for this one.
        self._routing.forget()
        self._mover.permits.keep(set())
        self._options.known_servers.take(message.known_servers)
        self._options.allowances.renew(message.allowance)
        self._apply(SlotTable.from_wire(message.table))
        self._mover.reset(reason)

    def take_allowance(self, message: messages.Allowance) -> None:
        """Use groups for as long as it says."""
        # one-owner: a grant to an earlier identity does not count for this one.
        if message.instance != self._options.instance:
            return
        allowances = self._options.allowances
        allowances.take(message.grant)
        self.stand_down()
        if allowances.limited and not self._confirmed_limit:
            self._channel.send(messages.Limited())
        self._confirmed_limit = allowances.limited

    def take_known_servers(self, message: messages.KnownServers) -> None:
        """Use these processes of servers."""
        # final-fence: processes known to an earlier identity do not count for this one.
        if message.instance == self._options.instance:
            self._options.known_servers.take(message.known)
            self._loop.processes_known()

    def stand_down(self) -> None:
        """Hold requests for groups that may no longer be used, and let requests for usable groups go."""
        allowances = self._options.allowances
        over = allowances.over()
        if over or allowances.ended:
            self._loop.end_over()
        self._holding.stood_down = FENCED_OFF if allowances.ended else STOOD_DOWN
        if over != self._routing.stood_down:
            log.warning("groups_stood_down", groups=sorted(over), before=sorted(self._routing.stood_down))
            self._routing.stand_down(over)
        self._loop.alarm = time.monotonic() + allowances.seconds_left()

    def _apply(self, table: SlotTable) -> None:
        allowances = self._options.allowances
        if self._routing.table is None or table.epoch >= self._routing.table.epoch:
            allowances.applied(table)
        over = allowances.over()
        if over:
            self._loop.end_over()
        # one-owner: requests held by the former table do not go anywhere by that table.
        self._routing.apply(table, over)
        self._loop.alarm = time.monotonic() + allowances.seconds_left()
        self._own.keep_servers({server for group in table.groups.values() for server in group.servers})
        self._table_applied(table)

    def send_verdict(self, epoch: int, refused: str | None) -> None:
        """Tell the supervisor of an epoch: it holds here, or why it was refused."""
        # A verdict that crosses an `identity` on its way must not count for the new identity.
        instance = self._options.instance
        self._channel.send(
            messages.Ack(instance=instance, epoch=epoch)
            if refused is None
            else messages.Nack(instance=instance, epoch=epoch, reason=sentence(refused))
        )

    def met(self, address: str, process: str) -> None:
        """Tell the supervisor of a process of a server that is not known yet."""
        self._channel.send(messages.Met(instance=self._options.instance, server=address, process=process))

    def fenced(self, address: str) -> None:
        """A server has fenced the proxy off."""
        log.error("fenced", server=address, instance=self._options.instance)
        self._replicas.fenced()
        # final-fence: from now on, before the supervisor hears of it. The connection that found the fence is still in
        # use.
        self._options.allowances.end()
        asyncio.get_running_loop().call_soon(self.stand_down)
        self._channel.send(messages.Fenced(instance=self._options.instance, server=address))
