"""The containers of ``deploy/compose.yaml`` may do no more than they need, and say when they are ready."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from proxy.settings import ProxySettings

FILE = Path(__file__).parents[3] / "deploy" / "compose.yaml"
SAID: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = SAID["services"]
SECRETS: dict[str, dict[str, str]] = SAID["secrets"]
OURS = {name: service for name, service in SERVICES.items() if service["image"] == "slotferry"}
PROXIES = [name for name in OURS if name.startswith("proxy")]
PORTS = {"topom": ("SLOTFERRY_TOPOM_LISTEN", 8380), "proxy": ("SLOTFERRY_PROXY_METRICS", 6381)}


def faults(service: dict[str, Any]) -> Iterator[str]:
    if service.get("read_only") is not True:
        yield "it may write to its image"
    if service.get("cap_drop") != ["ALL"] or service.get("cap_add"):
        yield "it has capabilities"
    if "no-new-privileges:true" not in service.get("security_opt", []):
        yield "it may get more privileges"
    if service.get("privileged") or any(service.get(name) == "host" for name in ("network_mode", "pid", "ipc")):
        yield "it is not apart from the host"
    for limit in ("mem_limit", "cpus", "pids_limit"):
        if not service.get(limit):
            yield f"it has no {limit}"
    if service["image"] != "slotferry" and service.get("user") in (None, "root", 0, "0"):
        yield "it runs as root"
    if "healthcheck" not in service:
        yield "nobody sees whether it is ready"


def size(text: str) -> float:
    return float(text[:-1]) * {"m": 1 << 20, "g": 1 << 30}[text[-1]]


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_may_do_no_more_than_it_needs(name: str) -> None:
    assert list(faults(SERVICES[name])) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"read_only": False},
        {"cap_drop": []},
        {"cap_add": ["NET_ADMIN"]},
        {"security_opt": []},
        {"privileged": True},
        {"network_mode": "host"},
        {"mem_limit": None},
        {"cpus": None},
        {"pids_limit": None},
        {"user": "root"},
    ],
    ids=str,
)
def test_a_container_that_may_do_more_is_found(changed: dict[str, Any]) -> None:
    assert len(list(faults(SERVICES["redis-1"] | changed))) == 1


@contextmanager
def answering(status: int) -> Iterator[tuple[str, list[str]]]:
    """The address of a server with that answer, and what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
def test_it_is_healthy_while_readyz_says_so(name: str, status: int, healthy: bool) -> None:
    how, program, *rest = OURS[name]["healthcheck"]["test"]
    variable, port = PORTS[name.split("-")[0]]
    assert (how, program) == ("CMD", "python")
    assert OURS[name]["environment"][variable] == f"0.0.0.0:{port}"
    assert f'"127.0.0.1:{port}"' in rest[-1]
    with answering(status) as (address, asked):
        run = subprocess.run(
            [sys.executable, *rest[:-1], rest[-1].replace(f"127.0.0.1:{port}", address)],
            capture_output=True,
            check=False,
            timeout=60,
        )
    assert asked == ["/readyz"]
    assert (run.returncode == 0) == healthy, run.stderr


def test_a_check_ends_before_it_is_given_up() -> None:
    for service in OURS.values():
        [seconds] = re.findall(r"timeout=(\d+)", service["healthcheck"]["test"][-1])
        assert int(seconds) < int(service["healthcheck"]["timeout"].removesuffix("s"))


@pytest.mark.parametrize("name", SERVICES)
def test_a_process_can_write_where_it_is_told_to(name: str) -> None:
    folders = [volume.split(":")[1] for volume in SERVICES[name]["volumes"]]
    variables = SERVICES[name].get("environment", {})
    written = [
        variables[which] for which in ("SLOTFERRY_TOPOM_DATA", "SLOTFERRY_PROXY_TABLE_FILE") if which in variables
    ]
    written += re.findall(r"/data/\S+", " ".join(SERVICES[name]["command"]))
    assert written
    assert all(any(path.startswith(f"{folder}/") for folder in folders) for path in written)


@pytest.mark.parametrize("name", OURS)
def test_a_process_finds_its_secrets_in_files_of_its_own(name: str) -> None:
    told = {value for name, value in OURS[name]["environment"].items() if "TOKEN" in name}
    assert told == {f"/run/secrets/{secret}" for secret in OURS[name]["secrets"]}
    assert set(OURS[name]["secrets"]) <= set(SECRETS)
    assert name == "topom" or OURS[name]["secrets"] == ["proxy-token"], "a proxy does not see topom's"


def test_no_secret_gets_into_the_image_or_the_history() -> None:
    folder = FILE.parent
    [place] = {(folder / secret["file"]).parent for secret in SECRETS.values()}
    assert place.relative_to(folder.parent).as_posix() in (folder / "Dockerfile.dockerignore").read_text().splitlines()
    assert subprocess.run(["git", "check-ignore", "-q", place / "x"], cwd=folder, check=False).returncode == 0


@pytest.mark.parametrize("name", PROXIES)
def test_a_proxy_closes_its_largest_sessions_before_its_memory_is_used_up(name: str) -> None:
    workers = OURS[name]["environment"]["SLOTFERRY_PROXY_WORKERS"]
    assert size(OURS[name]["mem_limit"]) >= 1.5 * workers * ProxySettings().sessions_limit_bytes
    assert OURS[name]["cpus"] > workers


@pytest.mark.parametrize("name", [name for name in SERVICES if name not in OURS])
def test_a_server_refuses_writes_before_its_memory_is_used_up(name: str) -> None:
    [limit] = re.findall(r"--maxmemory (\d+)gb", SERVICES[name]["command"][-1])
    assert size(SERVICES[name]["mem_limit"]) >= 2.5 * int(limit) * (1 << 30)
