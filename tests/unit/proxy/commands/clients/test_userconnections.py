"""A user has so many connections at all proxies together: workers count, their proxies and topom share out."""

from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest

from proxy.commands.clients.userconnections import REMEMBERED, UserConnections
from proxy.engine.session import Session
from proxy.settings import ProxySettings
from proxy.supervisor.limitshares import LimitShares
from proxy.supervisor.processes import Worker
from proxy.users import Users
from slots.connectionshares import LATE_SECONDS
from slots.messages.channel import Shares
from slots.messages.control import Heartbeat
from topom.proxies.limitshares import LimitShares as ToposShares

FEW_SECONDS = 6


def settings(limit: int) -> ProxySettings:
    users: list[Any] = [{"name": "tenant", "password": "t", "connections": limit}]
    return ProxySettings(users=users)


class Seat:
    """A worker: its counting is real, and its sessions are numbers."""

    def __init__(self, index: int, wanted: ProxySettings) -> None:
        self.index = index
        self.connections = UserConnections()
        self.sessions: list[Session] = []
        self.use(wanted)

    def use(self, wanted: ProxySettings) -> None:
        users = Users(wanted.users, wanted.password)
        found = users.find("tenant")
        assert found is not None
        self.user = found
        self.connections.change(users)
        for session in self.sessions:
            self.connections.enter(session, self.user)

    def send(self, message: Shares) -> None:
        self.connections.share(message.connections)

    def come(self) -> bool:
        made = SimpleNamespace(id=len(self.sessions), peer="127.0.0.1:1", state=SimpleNamespace(user=self.user))
        session = cast(Session, made)
        if self.connections.refusal(session, self.user) is not None:
            return False
        self.connections.enter(session, self.user)
        self.sessions.append(session)
        return True

    def go(self) -> None:
        self.connections.leave(self.sessions.pop())


class Proxy:
    def __init__(self, limit: int) -> None:
        wanted = settings(limit)
        self.seats = [Seat(0, wanted), Seat(1, wanted)]
        self.limits = LimitShares(lambda: cast("list[Worker]", self.seats), wanted, lambda: None)

    def tick(self) -> None:
        for seat in self.seats:
            self.limits.take(seat.index, {}, seat.connections.take())
        self.limits.tick()

    def use(self, limit: int) -> None:
        for seat in self.seats:
            seat.use(settings(limit))
        self.limits.change(settings(limit))


class Member(NamedTuple):
    lost: bool = False


class Cluster:
    """Two proxies with two workers each."""

    def __init__(self, limit: int) -> None:
        self.members: dict[int, Any] = {1: Member(), 2: Member()}
        self.topom: ToposShares | None = ToposShares(lambda: self.members)
        self.proxies = {number: Proxy(limit) for number in self.members}
        self.seats = [seat for proxy in self.proxies.values() for seat in proxy.seats]
        for _ in range(3):
            self.second()

    def second(self) -> None:
        for number, proxy in self.proxies.items():
            proxy.tick()
            said = Heartbeat(epoch=1, connections=proxy.limits.connections())
            if self.topom is not None and (answer := self.topom.answer(number, said)) is not None:
                proxy.limits.heard(answer)

    @property
    def open(self) -> int:
        return sum(len(seat.sessions) for seat in self.seats)


@pytest.mark.parametrize("busy", range(4))
def test_all_connections_may_be_at_one_worker(busy: int) -> None:
    cluster = Cluster(4)
    seconds = 0
    while cluster.open < 4:
        assert seconds < 4 * FEW_SECONDS
        while cluster.seats[busy].come():
            pass
        cluster.second()
        seconds += 1
    assert len(cluster.seats[busy].sessions) == 4
    for _ in range(20):
        cluster.second()
        assert not any(seat.come() for seat in cluster.seats)


@pytest.mark.parametrize("limit", [1, 4])
@pytest.mark.parametrize("first", range(4))
def test_a_client_is_not_refused_for_long_while_there_is_room(limit: int, first: int) -> None:
    cluster = Cluster(limit)
    for seat in (cluster.seats[first], *cluster.seats):
        seconds = 0
        while not seat.come():
            cluster.second()
            seconds += 1
        assert seconds <= FEW_SECONDS
        seat.go()


def test_many_clients_that_come_at_once_at_one_worker_are_let_in_within_seconds() -> None:
    cluster = Cluster(1000)
    seat = cluster.seats[3]
    assert sum(seat.come() for _ in range(1000)) == 250
    for _ in range(FEW_SECONDS):
        cluster.second()
        for _ in range(1000 - cluster.open):
            seat.come()
    assert cluster.open == 1000


def test_the_last_shares_hold_while_topom_is_away_and_a_new_topom_counts_anew() -> None:
    cluster = Cluster(8)
    cluster.topom = None
    for _ in range(20):
        cluster.second()
    assert [seat.come() for seat in cluster.seats] == [True] * 4
    for _ in range(20):
        for seat in cluster.seats:
            seat.come()
        cluster.second()
    assert cluster.open == 8
    cluster.topom = ToposShares(lambda: cluster.members)
    cluster.seats[0].go()
    for _ in range(REMEMBERED + FEW_SECONDS):
        cluster.second()
        cluster.seats[3].come()
    assert cluster.open == 8


def test_a_limit_that_is_lowered_closes_none_and_lets_none_in() -> None:
    cluster = Cluster(100)
    for seat in cluster.seats:
        while seat.come():
            pass
    assert cluster.open == 100
    for proxy in cluster.proxies.values():
        proxy.use(10)
    for _ in range(10):
        cluster.second()
        assert not any(seat.come() for seat in cluster.seats)
    for _ in range(24):
        for seat in cluster.seats:
            if seat.sessions:
                seat.go()
    assert cluster.open == 4
    for _ in range(20):
        cluster.second()
        for seat in cluster.seats:
            seat.come()
    assert cluster.open == 10


def test_a_proxy_that_topom_tells_nothing_has_a_tenth() -> None:
    proxy = Proxy(40)
    assert not any(seat.come() for seat in proxy.seats)
    for _ in range(LATE_SECONDS + 2):
        proxy.tick()
    assert [seat.come() for seat in proxy.seats * 4].count(True) == 4
    told = proxy.limits.connections()["tenant"]
    assert (told.share, told.held) == (4, 4)


def test_a_worker_that_ends_and_a_proxy_that_is_lost_leave_their_shares_to_others() -> None:
    cluster = Cluster(4)
    one = cluster.proxies[1]
    assert all(seat.come() for seat in cluster.seats)
    one.limits.ended(0)
    one.seats = [one.seats[1]]
    for _ in range(FEW_SECONDS):
        cluster.second()
    assert one.seats[0].come()
    del cluster.proxies[2]
    cluster.members[2] = Member(lost=True)
    for _ in range(FEW_SECONDS):
        cluster.second()
    assert one.seats[0].come()
    assert one.seats[0].come()
    assert not one.seats[0].come()
