"""Which process is told to drain when it comes back as a member that was told to drain."""

from collections.abc import Awaitable, Callable

import pytest

from slots.messages.control import Drain, Register
from tests.unit.topom.topom_fakes import Bench, FakeProxy
from topom.proxies.member import Member, Refused

MakeBench = Callable[..., Awaitable[Bench]]


async def come_back(
    bench: Bench, proxy: FakeProxy, pid: int = 1, draining: bool = False, registered_before: bool = False
) -> Member:
    frame = Register(
        instance=proxy.instance,
        address="127.0.0.1:6380",
        hostname="here",
        pid=pid,
        workers=2,
        version="0",
        epoch=0,
        draining=draining,
        registered_before=registered_before,
    )
    return await bench.members.register(frame, proxy)


@pytest.mark.parametrize(
    ("begun", "pid", "drains"),
    [
        (False, 1, True),  # it has lost its stream, and may not have heard
        (False, 2, False),  # a new start
        (True, 1, False),  # a new start in a container, where process ids begin anew
    ],
)
async def test_a_member_that_was_told_to_drain_comes_back(
    bench: MakeBench, begun: bool, pid: int, drains: bool
) -> None:
    one = await bench()
    proxy = await FakeProxy(one, 7).register()
    assert proxy.member is not None
    member = await one.members.drain(proxy.member.record.id)
    assert proxy.told == [Drain()]
    if begun:
        await one.members.drains(member)  # its heartbeat says so
    one.members.disconnected(member, proxy)
    member = await come_back(one, proxy, pid)
    assert member.record.draining is drains


async def test_a_new_start_is_told_to_drain_like_any_other(bench: MakeBench) -> None:
    one = await bench()
    proxy = await FakeProxy(one, 7).register()
    member = await come_back(one, proxy, draining=True)
    assert member.record.draining
    assert not (await come_back(one, proxy)).record.draining
    await one.members.drain(member.record.id)
    assert (await come_back(one, proxy)).record.draining


async def test_a_proxy_that_was_a_member_and_is_none_is_refused(bench: MakeBench) -> None:
    """final-fence: topom does not have to remember it."""
    one = await bench()
    proxy = FakeProxy(one, 7)
    with pytest.raises(Refused, match="no member any more") as refused:
        await come_back(one, proxy, registered_before=True)
    assert refused.value.reason == "fenced"
    member = await come_back(one, proxy)
    assert (await come_back(one, proxy, registered_before=True)).record == member.record
