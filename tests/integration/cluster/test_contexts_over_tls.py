"""Commands come to a topom that serves TLS by what a context keeps, and say what is wrong with it."""

import json
import os
from pathlib import Path

import pytest

from slots.topomtls import AUTHORITIES, CERTIFICATE, KEY
from tests.integration.cluster.certificates import Certificates
from tests.integration.cluster.commands import Outcome, slotferry
from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import Cluster


class Keeper:
    """Commands of somebody with contexts, and with nothing in the environment."""

    def __init__(self, folder: Path) -> None:
        self._environment = {"XDG_CONFIG_HOME": str(folder), "COLUMNS": "250"}

    async def run(self, line: str, given: str = "", **environment: str) -> Outcome:
        return await slotferry(*line.split(), given=given, **self._environment, **environment)

    async def keep(self, name: str, url: str, token: str, certificates: dict[str, str]) -> None:
        named = {AUTHORITIES: "--tls-ca", CERTIFICATE: "--tls-certificate", KEY: "--tls-key"}
        options = " ".join(f"{named[variable]} {file}" for variable, file in certificates.items())
        said = await self.run(f"context set {name} --topom {url} {options}", given=f"{token}\n")
        assert said.status == 0, said


@pytest.fixture
def keeper(tmp_path: Path) -> Keeper:
    return Keeper(tmp_path)


async def started(
    start_cluster: StartCluster, files: Certificates, asked: str, monkeypatch: pytest.MonkeyPatch
) -> Cluster:
    for name, value in files.of_command_line(asked).items():
        monkeypatch.setenv(name, value)
    return await start_cluster(
        groups=2, slots_on=[1], topom_settings=files.of_topom(asked), proxy_settings=files.of_proxy(asked)
    )


@pytest.mark.long
@pytest.mark.parametrize("asked", ["none", "all"])
async def test_every_verb_comes_by_the_contexts_certificates(
    start_cluster: StartCluster, tmp_path: Path, keeper: Keeper, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Certificates(tmp_path)
    cluster = await started(start_cluster, files, asked, monkeypatch)
    await keeper.keep("mine", cluster.topom_url, cluster.token, files.of_command_line(asked))
    for line, expected in (
        ("status", "groups"),
        ("top --once", "requests/s"),
        ("doctor", "looked at 2 servers"),
        ("slot move 0-63 --to 2 --wait", "moved to group 2: slots 0-63"),
        ("proxy list", cluster.proxy_addresses[0]),
        ("sizing show", "sizes of slots are not known"),
    ):
        said = await keeper.run(line)
        # The servers keep nothing on disk, which doctor calls critical.
        assert said.status == (2 if line == "doctor" else 0), (line, said)
        assert expected in said.out + said.err, (line, said)
    offered = {"COMP_WORDS": "slotferry group show ", "COMP_CWORD": "3", "_SLOTFERRY_COMPLETE": "complete_bash"}
    assert (await keeper.run("", **offered)).out.split() == ["1", "2"]
    assert cluster.token not in cluster.topom.log.read_text()


@pytest.mark.long
async def test_the_spark_job_comes_by_the_contexts_certificates(
    start_cluster: StartCluster, tmp_path: Path, keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Certificates(tmp_path)
    cluster = await started(start_cluster, files, "all", monkeypatch)
    await keeper.keep("mine", cluster.topom_url, cluster.token, files.of_command_line("all"))
    said = await keeper.run(
        f"sizing run --into {tmp_path}/sizes --prefixes 0 --master local[2] --conf spark.sql.shuffle.partitions=1 "
        "--conf spark.sql.codegen.wholeStage=false --conf spark.sql.codegen.factoryMode=NO_CODEGEN"
    )
    assert said.status == 0, said
    # The driver asked topom for the servers, and told it their sizes.
    assert (await cluster.api.sizes())["last"]["complete"]


@pytest.mark.long
async def test_what_is_wrong_is_said_by_every_verb_with_what_to_do(
    start_cluster: StartCluster, tmp_path: Path, keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Certificates(tmp_path)
    cluster = await started(start_cluster, files, "all", monkeypatch)
    plain = await start_cluster(groups=1, proxies=0, slots_on=[])
    url, right = cluster.topom_url, files.of_command_line("all")
    by_name = url.replace("127.0.0.1", "localhost")
    authority = {AUTHORITIES: files.authority.file}
    for name, address, certificates, expected in (
        (
            "stranger",
            url,
            {**right, AUTHORITIES: files.stranger.file},
            "no authority that is trusted here has signed topom's certificate; name the file with the one that has, as",
        ),
        ("system", url, {}, "no authority that is trusted here has signed topom's certificate; name the file"),
        ("host", by_name, right, "topom's certificate is not for the host in its URL; write a host that it names"),
        ("clear", url.replace("https", "http"), {}, "if it is topom and serves TLS, write https:// in its URL"),
        ("plain", plain.topom_url.replace("http", "https"), authority, "it speaks no TLS; write http:// in its URL"),
        (
            "bare",
            url,
            authority,
            "it wants to be shown a certificate that an authority of its tls_client_ca has signed",
        ),
    ):
        await keeper.keep(name, address, cluster.token, certificates)
        # Each run of Spark takes seconds; sentences of its job have their own tests.
        sizing = (f"sizing run --into {tmp_path}/sizes",) if name == "host" else ()
        for verb in ("status", "top --once", "doctor", "slot move 0-9 --to 2 --wait", *sizing):
            said = await keeper.run(f"--context {name} {verb}")
            assert said.status == (2 if verb == "doctor" else 1), (name, verb, said)
            assert expected in " ".join(said.err.split()), (name, verb, said)
            assert "Traceback" not in said.err
            assert cluster.token not in said.out + said.err
        offered = {"COMP_WORDS": f"slotferry --context {name} group show ", "COMP_CWORD": "5"}
        nothing = await keeper.run("", **offered, _SLOTFERRY_COMPLETE="complete_bash")
        assert (nothing.status, nothing.out.split(), nothing.err) == (0, [], "")


async def test_files_may_be_renewed_or_missing_behind_a_context(
    start_cluster: StartCluster, tmp_path: Path, keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Certificates(tmp_path)
    cluster = await started(start_cluster, files, "all", monkeypatch)
    await keeper.keep("mine", cluster.topom_url, cluster.token, files.of_command_line("all"))
    key = files.client.key
    os.rename(key, f"{key}.away")
    missing = await keeper.run("status")
    assert missing.status == 1
    assert f"{key} cannot be read: No such file or directory" in " ".join(missing.err.split())
    listed = await keeper.run("context list")
    assert (listed.status, f"{key} cannot be read" in " ".join(listed.err.split())) == (0, True)
    shown = json.loads((await keeper.run("context show -o json")).out)
    assert (shown["tls_key"], "cannot be read" in shown["tls_wrong"]) == (key, True)
    os.rename(f"{key}.away", key)
    assert (await keeper.run("status")).status == 0
