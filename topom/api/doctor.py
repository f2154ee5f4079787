"""What will hurt: settings and states of servers, proxies and topom that lead to trouble.

**bounded**: of one rule the answer has :data:`MOST_OF_A_RULE` findings, and says how many more there are. The topoms
that follow have :data:`CLOCK_SECONDS` to tell the time.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from email.utils import parsedate_to_datetime

import httpx
from fastapi import Request

from migrator.followable import disk_of
from slots.version import program_version
from topom.api import doctor_models as models
from topom.api import groups, status
from topom.api.access import ServedTopom
from topom.api.live.problems import problems
from topom.api.roles import LIVE
from topom.api.routers import resource
from topom.api.settings import describe
from topom.cluster.topology import is_loopback
from topom.doctor.facts import TopomFacts
from topom.doctor.findings import Severity
from topom.reasons import Reason
from topom.term.node import Node
from topom.term.reloading import InForce
from topom.term.service import Topom
from topom.term.settings import split_listen

router = resource("/doctor", "status")

MOST_OF_A_RULE = 100
CLOCK_SECONDS = 2.0


@router.get("")
async def examine(request: Request, topom: ServedTopom) -> models.Diagnosis:
    """Ask all servers for their settings and their state, and say what will hurt, the worst first."""
    node: Node | None = request.app.state.node
    table = topom.ledger.table
    described = [groups.describe_one(topom, table, group_id, {}) for group_id in sorted(table.groups)]
    wrong = problems(status.describe(node, topom, described))
    waits = [(str(one["about"]), Reason.from_document(one)) for one in wrong.values()]
    in_force: InForce | None = request.app.state.settings
    found = await topom.doctor.examine(await _about(node, topom, in_force), waits)
    shown: Counter[str] = Counter()
    more: Counter[str] = Counter()
    findings = []
    for finding in found.findings:
        if shown[finding.rule] < MOST_OF_A_RULE:
            shown[finding.rule] += 1
            findings.append(models.FindingShown(**asdict(finding)))
        else:
            more[finding.rule] += 1
    counts = Counter(finding.severity for finding in found.findings)
    return models.Diagnosis(
        at=found.at,
        servers=found.servers,
        not_asked=found.not_asked,
        counts={severity: counts[severity] for severity in Severity},
        more=dict(more),
        findings=findings,
    )


async def _about(node: Node | None, topom: Topom, in_force: InForce | None) -> TopomFacts:
    settings = topom.settings
    host, _ = split_listen(settings.listen)
    url = settings.url if node is None else node.url
    followers = [] if node is None or node.leading is None else node.roster.followers()
    versions = {follower.url: follower.version for follower, silent_since in followers if silent_since is None}
    shown = describe(in_force)
    return TopomFacts(
        version=program_version(),
        listen=settings.listen,
        public=not is_loopback(f"[{host}]:1" if ":" in host else f"{host}:1"),
        encrypted=url.startswith("https://"),
        shared=node is not None and node.shared,
        followers=versions,
        clocks={} if node is None else await clocks(node.http, versions),
        settings_file="" if shown is None else shown.file,
        settings_refused="" if shown is None else shown.refused,
        restart=() if shown is None else tuple(shown.restart),
        folder=str(settings.data),
        free=disk_of(settings.data),
        more_tokens=bool(settings.tokens),
        ha=settings.ha,
        server_tls=settings.redis_tls,
    )


async def clocks(http: httpx.AsyncClient, urls: Iterable[str]) -> dict[str, float]:
    """How many seconds the clocks of topoms are ahead, by the date in the head of an answer. Who tells none is left
    out."""
    found: dict[str, float] = {}

    async def look(url: str) -> None:
        # httpx raises InvalidURL for what is none; a date may be anything.
        with suppress(httpx.HTTPError, httpx.InvalidURL, KeyError, TypeError, ValueError, OverflowError):
            before = time.time()
            answer = await http.get(f"{url}{LIVE}", timeout=CLOCK_SECONDS)
            told = parsedate_to_datetime(answer.headers["date"]).timestamp()
            # The date has no fractions, and the server may make it once a second.
            found[url] = told + 0.5 - (before + time.time()) / 2

    await asyncio.gather(*map(look, urls))
    return found
