"""A topom that follows tells the leader of itself, so that operators see it there. Nothing depends on it."""

import asyncio
from importlib.metadata import PackageNotFoundError, version

import httpx
import structlog

from topom.errors import NotLeading
from topom.node import Node

log = structlog.get_logger(__name__)

SECONDS = 1.0


async def announce(node: Node, token: str) -> None:
    """Tell whoever leads, for ever; what fails is tried again a second later."""
    while True:
        leader = node.leader
        if node.leading is None and leader is not None:
            try:
                said = {
                    "instance": node.instance,
                    "url": node.url,
                    "version": program_version(),
                    "epoch": node.serving.ledger.table.epoch,
                }
                await node.http.post(
                    f"{leader.url}/api/v1/topoms",
                    json=said,
                    headers={"Authorization": f"Bearer {token}"},
                    timeout=SECONDS,
                )
            except (httpx.HTTPError, httpx.InvalidURL, NotLeading) as error:
                log.debug("not_announced", leader=leader.url, reason=repr(error))
        await asyncio.sleep(SECONDS)


def program_version() -> str:
    """Of this program, as it is installed; 0 where it is not."""
    try:
        return version("slotferry")
    except PackageNotFoundError:
        return "0"
