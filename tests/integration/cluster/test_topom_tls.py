"""topom serves TLS: proxies, its own migrator, the command line and the other topoms come by it, and show certificates.

Nobody speaks to it in the clear, and who may not come in is told what is missing.
"""

import asyncio
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from slotferry.calls import REMEDIES
from slots.topomtls import AUTHORITIES
from tests.certificates import UNENCRYPTED
from tests.integration.cluster.certificates import Certificates
from tests.integration.cluster.commands import slotferry
from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import Cluster, eventually, log_of
from tests.integration.cluster.several import SeveralTopoms
from tests.integration.stores.servers import need_etcd

NODES = 2


@pytest.fixture
def files(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


def environ(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.long
@pytest.mark.parametrize("asked", ["none", "streams", "all"])
async def test_slots_move_while_everybody_comes_by_tls(
    start_cluster: StartCluster, files: Certificates, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ(monkeypatch, files.of_command_line(asked))
    cluster = await start_cluster(
        groups=2,
        slots_on=[1],
        topom_settings={**files.of_topom(asked), "migration_way": "stream"},
        proxy_settings=files.of_proxy(asked),
        redis_arguments=("--repl-diskless-sync-delay", "0"),
    )
    await cluster.load_ballast()
    # By the stream, so that topom's own migrator has to come by TLS, too.
    await cluster.api.move_slots("0-255", 2)
    await cluster.at_rest({1: 768, 2: 256})
    await cluster.check_ballast()
    said = await slotferry(
        "status", "--topom", cluster.topom_url, "--token", cluster.token, **files.of_command_line(asked)
    )
    assert said.status == 0, said
    await refused(cluster, files, asked)
    assert cluster.token not in cluster.topom.log.read_text()


async def refused(cluster: Cluster, files: Certificates, asked: str) -> None:
    """Those who may not come in, and what they are told."""
    url = cluster.topom_url
    async with httpx.AsyncClient(verify=UNENCRYPTED, trust_env=False) as plain:
        with pytest.raises(httpx.TransportError):
            await plain.get(f"{url.replace('https', 'http')}/livez")
    command = ("status", "--topom", url, "--token", cluster.token)
    unknown = await slotferry(*command, **{AUTHORITIES: files.stranger.file})
    assert unknown.status == 1
    assert f"name the file with the one that has, as {REMEDIES.authorities}" in " ".join(unknown.err.split())
    in_the_clear = await slotferry("status", "--topom", url.replace("https", "http"), "--token", cluster.token)
    assert in_the_clear.status == 1
    assert "write https:// in its URL" in " ".join(in_the_clear.err.split())
    without = await slotferry(*command, **{AUTHORITIES: files.authority.file})
    assert without.status == (1 if asked == "all" else 0), without
    if asked == "all":
        assert f"(name one as {REMEDIES.certificate})" in " ".join(without.err.split())

    # A proxy with a token, but with no certificate, or one of another authority.
    bare = {"topom_tls_certificate": "", "topom_tls_key": ""}
    foreign = files.stranger.issue("stranger-client")
    await proxy_waits(cluster, bare, "to be shown a certificate" if asked != "none" else "")
    shown = {"topom_tls_certificate": foreign.certificate, "topom_tls_key": foreign.key}
    await proxy_waits(cluster, shown, "certificate" if asked != "none" else "")
    await proxy_waits(cluster, {"topom_tls_ca": files.stranger.file}, "no authority that is trusted here")


async def proxy_waits(cluster: Cluster, settings: dict[str, Any], reason: str) -> None:
    """One more proxy does not get in, and says why; "" if it does."""
    before = len(await cluster.api.proxies())
    (cluster.directory / f"proxy-{len(cluster.proxies) + 1}.log").unlink(missing_ok=True)
    cluster._start_proxy({**settings, "topom": [cluster.topom_url]})
    process = cluster.proxies.pop()
    cluster.proxy_addresses.pop()
    try:

        async def problems() -> list[str]:
            return [entry["reason"] for entry in log_of(process) if entry.get("event") == "topom_unreachable"]

        if reason:
            found = await eventually(problems, bool, "the proxy to say why it is not let in")
            assert reason in found[0]
            assert len(await cluster.api.proxies()) == before
        else:
            await eventually(cluster.api.proxies, lambda found: len(found) > before, "the proxy to be registered")
        assert cluster.token not in process.log.read_text()
    finally:
        await process.stop()


@pytest.mark.long
async def test_certificates_are_renewed_while_everything_runs(
    start_cluster: StartCluster, files: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ(monkeypatch, files.of_command_line("all"))
    cluster = await start_cluster(
        groups=2,
        slots_on=[1],
        topom_settings={**files.of_topom("all"), "migration_way": "stream"},
        proxy_settings=files.of_proxy("all"),
        redis_arguments=("--repl-diskless-sync-delay", "0"),
    )
    await cluster.load_ballast()
    await cluster.api.move_slots("0-127", 2)
    await cluster.at_rest({1: 896, 2: 128})
    pid, port = cluster.topom.pid, int(cluster.topom_url.rpartition(":")[2])

    async def served() -> str:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=files.context(files.client))
        try:
            return str(writer.get_extra_info("peercert")["serialNumber"])
        finally:
            writer.close()

    before = await served()
    for issued in (files.topom, files.client):
        new = files.authority.issue("renewed")
        shutil.copy(new.certificate, issued.certificate)
        shutil.copy(new.key, issued.key)
    await eventually(served, lambda serial: serial != before, "the renewed certificate to be served")
    # Who comes anew comes by the new ones: a proxy, and topom's own migrator.
    await cluster.add_proxy()
    [migrator] = (await cluster.api.migrators())["migrators"]
    os.kill(migrator["pid"], signal.SIGKILL)
    await cluster.api.move_slots("0-255", 2)
    await cluster.at_rest({1: 768, 2: 256})
    await cluster.check_ballast()
    assert cluster.topom.pid == pid
    assert cluster.topom.running


@pytest.mark.long
async def test_topoms_pass_requests_on_and_take_over_by_tls(
    files: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_etcd()
    environ(monkeypatch, files.of_command_line("all"))
    several = SeveralTopoms(
        topoms=2,
        groups=2,
        slots_on=[1],
        topom_settings=files.of_topom("all"),
        proxy_settings=files.of_proxy("all"),
    )
    several.verified_by = files.context(files.client)
    async with several as cluster, cluster.visit():
        leader = await cluster.all_well()
        follower = 1 - leader

        async def topoms() -> Any:
            async with cluster.asking(follower):
                return (await cluster.api.status())["topoms"]

        await eventually(topoms, lambda found: len(found) == NODES, "both topoms to be known")
        async with cluster.asking(follower):
            await cluster.api.move_slots("0-255", 2)
        await cluster.at_rest({1: 768, 2: 256})
        await cluster.topoms[leader].kill()
        await cluster.taken_over(leader)
        async with cluster.asking(follower):
            await cluster.at_rest({1: 768, 2: 256})
            await cluster.api.move_slots("0-255", 1)
            await cluster.at_rest({1: 1024, 2: 0})


@pytest.mark.long
async def test_a_cluster_goes_over_to_tls_while_its_proxy_serves(
    start_cluster: StartCluster, files: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await start_cluster(groups=2, proxies=0, slots_on=[1])
    plain = cluster.topom_url
    by_tls = plain.replace("http", "https")
    await cluster.add_proxy({**files.of_proxy("all"), "topom": [plain, by_tls]})
    await cluster.load_ballast()
    await cluster.topom.stop()
    await cluster.check_ballast()
    cluster.topom.environment = {
        **(cluster.topom.environment or {}),
        **{f"SLOTFERRY_TOPOM_{name.upper()}": value for name, value in files.of_topom("all").items()},
    }
    cluster.topom_url = by_tls
    environ(monkeypatch, files.of_command_line("all"))
    await cluster.restart_topom()
    async with cluster.visit():
        await cluster.ready()
        await cluster.api.move_slots("0-255", 2)
        await cluster.at_rest({1: 768, 2: 256})
        await cluster.check_ballast()
