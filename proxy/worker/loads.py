"""What a worker tells its supervisor each second of the traffic that it has counted."""

import base64
from collections.abc import Collection

from proxy.channel import Channel
from proxy.commands.clients.userconnections import UserConnections
from proxy.commands.clients.userlimits import UserLimits
from proxy.commands.notable import NotableLog
from proxy.engine.requests import Loop
from slots.messages.channel import Load, SupervisorMessage
from slots.messages.load import HotKey, ServerTraffic, Traffic

MOST_HOT_KEYS = 128
"""That a worker tells."""


class Loads:
    """Makes the messages; each has what was counted since the one before.

    Args:
        loop: of the worker, which counts.
        notable: its log of notable requests.
        limits: of its users.
        connections: of its users.
        hash_keys: the setting ``hash_hot_keys``.
    """

    def __init__(
        self, loop: Loop, notable: NotableLog, limits: UserLimits, connections: UserConnections, hash_keys: bool
    ) -> None:
        self._loop = loop
        self._notable = notable
        self._limits = limits
        self._connections = connections
        self._hash_keys = hash_keys
        self._since = loop.now

    def tell(self, channel: Channel[SupervisorMessage], servers: Collection[str]) -> None:
        """Send the next message, unless the supervisor is behind: counts that stay here take no more room, and messages
        that wait would soon end the channel."""
        if not channel.unsent:
            channel.send(self.message(servers))

    def message(self, servers: Collection[str]) -> Load:
        """The next message. ``servers``: those that may be asked for something."""
        seconds = self._loop.now - self._since
        self._since = self._loop.now
        traffic = self._loop.traffic
        hot_keys = self._loop.hot_keys.tell(seconds, MOST_HOT_KEYS, self._hash_keys)
        return Load(
            slots=base64.b64encode(traffic.slots.take(len(traffic.slots))).decode(),
            servers={address: ServerTraffic(*counts) for address, counts in traffic.take_servers(servers).items()},
            users={name: Traffic(*counts) for name, counts in self._loop.statistics.take_users().items()},
            limited=self._limits.take(),
            connections=self._connections.take(),
            hot_keys=[
                HotKey(database, slot, base64.b64encode(key).decode(), length, rate, excess)
                for database, slot, key, length, rate, excess in hot_keys
            ],
            notable=self._notable.take(),
        )
