"""What a proxy grants its workers and reports to topom, depending on what topom and replicas say."""

import asyncio
from collections.abc import Collection, Mapping

import pytest

from proxy.supervisor.standdown.evidence import KNOWN_SECONDS
from proxy.supervisor.standdown.fenceprobe import Look
from proxy.supervisor.standdown.standdown import KNOWN_AGAIN_SECONDS, StandDown
from slots.access import ServerAccess
from slots.messages.channel import Allowance, Grant, Known, KnownServers
from slots.messages.control import Heard, Registered
from slots.messages.message import Product

FIRST = "1" * 32
PRODUCT = Product(name="p", number_of_slots=4, slot_function="crc32", databases=16)


class FakeProxy:
    """A supervisor whose workers and file do as the test says."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.workers_instance = FIRST
        self.replicas: dict[int, tuple[str, ...]] = {1: ("r:1",), 2: ()}
        self.limited = True
        self.kept = True
        self.told: list[Allowance] = []
        self.known: list[KnownServers] = []
        self.found: list[str] = []
        self.beats = 0
        self.rule = StandDown(ServerAccess(), self, lambda: self.now)

    def group_replicas(self) -> Mapping[int, Collection[str]]:
        return self.replicas

    def tell_workers(self, message: Allowance) -> None:
        self.told.append(message)

    def tell_known_servers(self, message: KnownServers) -> None:
        self.known.append(message)

    def workers_limited(self) -> bool:
        return self.limited

    def keeps_rule(self, seconds: float | None) -> bool:
        return self.kept

    def beat(self) -> None:
        self.beats += 1

    def fence_found(self, server: str) -> None:
        self.found.append(server)

    def register(self, stand_down_seconds: float | None = 5.0) -> float | None:
        """Register with a topom; give the rule that it was told."""
        said = self.rule.registration()
        self.rule.registered(
            Registered(
                proxy_id=1,
                product=PRODUCT,
                cluster="c",
                start="s",
                heartbeat_seconds=1.0,
                stand_down_seconds=stand_down_seconds,
                quiet_seconds=2.0,
            )
        )
        return said

    def beaten(self) -> float | None:
        """Send a heartbeat that topom answers at once; give the rule that it was told."""
        number, said = self.rule.heartbeat(), self.rule.confirmed()
        self.rule.heard(Heard(number=number))
        return said


def test_nothing_is_limited_before_topom_says_so_and_all_is_from_then_on() -> None:
    proxy = FakeProxy()
    assert proxy.rule.grant() == Grant(all=None)
    assert proxy.register() is None
    assert proxy.rule.grant() == Grant(all=1005.0)
    # What counts is when it was sent.
    heartbeat = proxy.rule.heartbeat()
    proxy.now = 1003.0
    late = proxy.rule.heartbeat()
    proxy.rule.heard(Heard(number=heartbeat))
    assert proxy.rule.grant().all == 1005.0
    # An answer is not believed either if the heartbeat went over another stream.
    proxy.rule.lost()
    proxy.rule.heard(Heard(number=late))
    assert proxy.rule.grant().all == 1005.0
    proxy.now = 1006.0
    assert proxy.rule.groups_over() == [1]


def test_topom_may_count_on_it_once_workers_and_file_have_it() -> None:
    proxy = FakeProxy()
    proxy.rule.grant()
    proxy.register()
    assert proxy.beaten() is None, "workers may still have what was granted without a limit"
    proxy.rule.grant()
    for proxy.limited, proxy.kept, said in ((False, True, None), (True, False, None), (True, True, 5.0)):
        assert proxy.beaten() == said
    assert proxy.register() == 5.0
    # A shorter allowance holds once what the longer one granted is over.
    proxy.register(stand_down_seconds=2.0)
    assert proxy.beaten() == 5.0
    proxy.now += 3.1
    assert proxy.beaten() == 2.0
    proxy.register(stand_down_seconds=None)
    assert proxy.told == [Allowance(instance=FIRST, grant=Grant(all=None))]
    assert proxy.beaten() is None


ENDED = Grant(all=0.0, ended=True)


@pytest.mark.parametrize("seconds", [5.0, None])
def test_an_identity_that_was_fenced_is_granted_nothing_whatever_topom_says_to_the_next(seconds: float | None) -> None:
    """final-fence: for no group, with replicas or without, and for no process of a server."""
    proxy = FakeProxy()
    proxy.rule.saw("m:1", "process")
    proxy.register(stand_down_seconds=seconds)
    proxy.rule.grant()
    assert proxy.rule.known_servers().processes == {"m:1": "process"}
    proxy.rule.new_identity(workers_have_it=False)
    assert proxy.told[-1] == Allowance(instance=FIRST, grant=ENDED)
    proxy.now = 1004.0
    assert proxy.register(stand_down_seconds=seconds) is None
    proxy.beaten()
    assert proxy.rule.grant() == ENDED
    assert proxy.rule.groups_over() == [1, 2]
    assert proxy.rule.doubts
    assert proxy.rule.known_servers() == Known(processes={}, until=0.0)
    assert proxy.beaten() is None
    # Servers that were seen before the new identity was registered are known to it.
    proxy.rule.identity_taken()
    assert proxy.rule.grant().all == (None if seconds is None else 1009.0)
    assert proxy.rule.known_servers().processes == {"m:1": "process"}
    assert proxy.beaten() == seconds


def test_a_process_is_known_once_topom_has_answered_what_was_sent_after_it_was_seen() -> None:
    """final-fence: a mark that it may have forgotten is older than that."""
    proxy = FakeProxy()
    proxy.register()
    proxy.known.clear()
    under_way = proxy.rule.heartbeat()
    proxy.now += 1
    for _ in range(3):
        proxy.rule.met("m:1", "process")
    assert proxy.beats == 3, "the fake sends none, so that there is none under way"
    proxy.rule.heard(Heard(number=under_way))
    assert proxy.known == []
    later = proxy.rule.heartbeat()
    proxy.now += 1
    proxy.rule.met("m:1", "process")
    assert proxy.beats == 3, "the one under way will do"
    proxy.rule.heard(Heard(number=later))
    known = Known(processes={"m:1": "process"}, until=1001.0 + KNOWN_SECONDS)
    assert proxy.known == [KnownServers(instance=FIRST, known=known)]
    # Without news nothing is sent, until it is about time.
    proxy.beaten()
    assert len(proxy.known) == 1
    # That does not make another process known.
    proxy.rule.met("m:1", "another")
    assert proxy.beats == 4
    assert proxy.rule.known_servers().processes == {"m:1": "process"}
    proxy.now += KNOWN_AGAIN_SECONDS + 1
    proxy.beaten()
    assert proxy.known[-1].known.processes == {"m:1": "another"}
    proxy.now += KNOWN_AGAIN_SECONDS + 1
    proxy.beaten()
    assert len(proxy.known) == 3
    proxy.rule.keep_only({"m:2"})
    assert proxy.rule.known_servers().processes == {}


def test_a_longer_allowance_is_said_to_the_next_topom_at_once() -> None:
    proxy = FakeProxy()
    proxy.register()
    proxy.rule.grant()
    assert proxy.beaten() == 5.0
    # The first one stored it before it reported it; workers may have it before the next heartbeat.
    proxy.register(stand_down_seconds=20.0)
    assert proxy.register() == 20.0


async def test_replicas_are_asked_while_topom_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = FakeProxy()
    said: dict[str, Look | Exception] = {"r:1": Look(False, False, "process")}

    class Client:
        def __init__(self, server: str) -> None:
            self.server = server

        async def aclose(self) -> None: ...

    async def look(client: Client, instance: str) -> Look:
        assert instance == proxy.workers_instance
        answer = said[client.server]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("proxy.supervisor.standdown.standdown.look", look)
    monkeypatch.setattr(
        "proxy.supervisor.standdown.standdown.client_of", lambda server, access, seconds: Client(server)
    )
    proxy.register()
    await proxy.rule._ask()
    assert proxy.beats == 1, "its word counts after the next answer"
    proxy.now = 1001.0
    proxy.beaten()
    proxy.now = 1004.0
    await proxy.rule._ask()
    assert proxy.rule.grant() == Grant(all=1006.0, groups={1: 1009.0})
    for answer in (OSError(), Look(False, True, "process"), Look(False, False, "another")):
        proxy.now += 1
        said["r:1"] = answer
        await proxy.rule._ask()
        assert proxy.rule.grant().groups == {1: 1009.0}
    assert proxy.found == []
    said["r:1"] = Look(True, False, "another")
    await proxy.rule._ask()
    assert proxy.found == ["r:1"]
    # Started from a kept table, it trusts the processes that are named there.
    kept = {"m:1": "master", "r:1": "process"}
    proxy.rule.start_alone(5.0, 50.0, kept)
    assert proxy.rule.known_servers() == Known(processes=kept, until=proxy.now - 50.0 + KNOWN_SECONDS)
    assert proxy.rule.known == kept
    for process, groups in (("another", {}), ("process", {1: proxy.now + 5.0})):
        said["r:1"] = Look(False, False, process)
        await proxy.rule._ask()
        assert proxy.rule.grant() == Grant(all=962.0, groups=groups)
    # one-owner: a clock that was set back gives no allowance to an old table.
    proxy.rule.start_alone(5.0, 1.0, kept)
    assert proxy.rule.grant() == Grant(all=proxy.now)
    await proxy.rule._ask()
    assert proxy.rule.grant().groups == {1: proxy.now + 5.0}


async def test_many_servers_that_leave_at_a_time_hold_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = FakeProxy()
    servers = [f"r:{number}" for number in range(8)]
    all_close = asyncio.Barrier(len(servers))

    class Client:
        async def aclose(self) -> None:
            await all_close.wait()
            raise OSError("the link is cut")

    monkeypatch.setattr("proxy.supervisor.standdown.standdown.client_of", lambda server, access, seconds: Client())
    await proxy.rule._keep_clients(servers)
    async with asyncio.timeout(60):
        await proxy.rule._keep_clients(())
