"""Which proxies cluster clients are shown: those in cluster mode that live and are not about to end.

A proxy in cluster mode gets the list of all of them, in one small frame, whenever it changes. Nothing of this is
stored. A topom that has just begun to lead sends nothing until each proxy that it knows has registered again, or is
lost; otherwise clients would take the beginning of a list for the whole. Until then proxies go on with the list they
have.
"""

from slots.messages.control import Proxies
from slots.messages.message import ListedProxy, encode
from topom.periodic import Look, Loop
from topom.proxies.member import Member
from topom.proxies.members import Members

LOOK_SECONDS = 0.2
"""Seconds between two looks for changes. However many changes come meanwhile, proxies are told once (**bounded**)."""


class ProxyList(Loop):
    """The list, as a frame.

    Args:
        members: the proxies.
    """

    name = "list of proxies"

    def __init__(self, members: Members) -> None:
        super().__init__()
        self._members = members
        self._entries: list[ListedProxy] | None = None
        self._frame = ""
        self.version = 0
        """Grows with each change; 0 while there is nothing to say."""

    def frame(self, sent: int) -> tuple[int, str] | None:
        """The newest version and its frame; None if the proxy has it already."""
        return (self.version, self._frame) if self.version > sent else None

    async def look(self) -> Look:
        """Look which proxies there are now; if that is news, wake the links of those in cluster mode."""
        self._renew()
        number = len(self._entries) if self._entries is not None else 0
        proxies = "proxy" if number == 1 else "proxies"
        return Look(f"cluster clients are shown {number} {proxies}" if self.version else "", LOOK_SECONDS)

    def _renew(self) -> None:
        members = self._members.all()
        if self.version == 0 and not all(member.met or member.lost for member in members):
            return
        wanting = [member for member in members if member.cluster is not None]
        entries = [_entry(member) for member in wanting if not member.lost and not member.draining]
        if entries == self._entries or not wanting:
            return
        self._entries = entries
        self._frame = encode(Proxies(proxies=entries))
        self.version += 1
        for member in wanting:
            if member.link is not None:
                member.link.wake()


def _entry(member: Member) -> ListedProxy:
    assert member.cluster is not None
    return ListedProxy(member.record.id, member.cluster.host, member.cluster.port, member.cluster.tls_port)
