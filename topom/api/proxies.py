"""Proxies: members of the barrier."""

import asyncio
import time
from typing import Annotated, Literal, cast

from fastapi import Depends, Query

from topom.api import proxy_models as models
from topom.api.access import ServedTopom, refuse_body
from topom.api.routers import resource
from topom.proxies.member import Member
from topom.proxies.reloads import Outcome
from topom.term.service import Topom

router = resource("/proxies", "proxies")


def describe(topom: Topom) -> list[models.Proxy]:
    """Every proxy, by id."""
    known = topom.leads()
    return [_describe(member, known) for member in topom.members.all()]


@router.get("")
async def list_proxies(topom: ServedTopom) -> models.Proxies:
    """All proxies for which topom waits when slots move, also lost ones."""
    return models.Proxies(proxies=describe(topom))


@router.delete("/{proxy_id}")
async def remove_proxy(
    topom: ServedTopom,
    proxy_id: int,
    force: Annotated[bool, Query(description="Even if servers at which it has to be fenced do not answer.")] = False,
) -> models.ProxyRemoved:
    """Fence a proxy off all servers and forget it. If it still runs, it comes back as a new one."""
    return models.ProxyRemoved(id=proxy_id, not_fenced=await topom.removals.remove(proxy_id, force))


@router.post("/{proxy_id}/drain", dependencies=[Depends(refuse_body)])
async def drain_proxy(topom: ServedTopom, proxy_id: int) -> models.Proxy:
    """Tell a proxy to let its clients go, between requests and spread over time, and then to leave and end."""
    return _describe(await topom.members.drain(proxy_id), True)


@router.post("/reload", dependencies=[Depends(refuse_body)])
async def reload_proxies(topom: ServedTopom) -> models.ProxiesReloaded:
    """Have all proxies read their settings anew, at the same time. Each reads its own file; what it answers is told."""
    return models.ProxiesReloaded(proxies=[_reloaded(one) for one in await topom.reloads.ask(None)])


@router.post("/{proxy_id}/reload", dependencies=[Depends(refuse_body)])
async def reload_proxy(topom: ServedTopom, proxy_id: int) -> models.ProxyReloaded:
    """Have one proxy read its settings anew."""
    return _reloaded(*await topom.reloads.ask(proxy_id))


def _reloaded(outcome: Outcome) -> models.ProxyReloaded:
    record, answer = outcome.member.record, outcome.answer
    said = {} if answer is None else answer.model_dump(exclude={"type", "number"})
    return models.ProxyReloaded(id=record.id, address=record.address, silent=outcome.silent, **said)


def _since(member: Member) -> float:
    return round(time.time() - (asyncio.get_running_loop().time() - member.heard_at))


def _describe(member: Member, known: bool) -> models.Proxy:
    record = member.record
    return models.Proxy(
        id=record.id,
        instance=record.instance,
        address=record.address,
        hostname=record.hostname,
        pid=record.pid,
        workers=record.workers,
        version=record.version,
        state=cast(Literal["online", "lost"], member.state) if known else "unknown",
        lost_since=_since(member) if known and member.lost else None,
        draining=record.draining,
        stand_down_seconds=record.stand_down,
        epoch=member.acked,
        counters=dict(member.counters),
    )
