"""Leases: a proxy that is silent for longer is lost, unless topom itself was held up."""

import time
from collections.abc import Awaitable, Callable

import pytest

from tests.unit.topom.topom_fakes import Bench, FakeProxy
from topom.proxies.leases import Leases

MakeBench = Callable[..., Awaitable[Bench]]


async def test_a_silent_proxy_is_lost_and_named(bench: MakeBench) -> None:
    one = await bench(lease=60.0)
    silent = await FakeProxy(one, 1).register()
    assert silent.member is not None
    leases = Leases(one.members)
    assert (await leases.look()).says == ""
    silent.member.heard_at -= 61.0
    assert (await leases.look()).says == f"proxies are lost: {silent.member.record.id}"
    assert silent.member.lost
    one.members.heard(silent.member)
    assert (await leases.look()).says == ""


async def test_the_silence_of_a_process_that_was_held_up_is_its_own(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await bench(lease=0.1)
    proxy = await FakeProxy(one, 1).register()
    assert proxy.member is not None
    leases = Leases(one.members)
    await leases.look()
    time.sleep(0.3)  # noqa: ASYNC251 - the whole process is held up
    await leases.look()
    assert not proxy.member.lost
