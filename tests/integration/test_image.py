"""The image's steps, the compose file's services and the units run, in root file systems of their own.

There is no container engine and no cluster here: what they would hold processes to is done by hand. A process has a
read-only root, its volumes, the user of the image, no capability, and no way to get one.

It takes root on Linux, debootstrap, and a mirror of Debian and a package index within reach.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from slotferry import __version__
from tests import roots

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "deploy" / "compose.yaml"
SAID: dict[str, Any] = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = SAID["services"]
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
TOKEN = "0123456789abcdef" * 2
TOKENS = {
    "topom.token": TOKEN,
    "proxy.token": "token-of-the-proxies",
    "migrator.token": "token-of-the-migrators",
    "topom.tokens": "proxy:fleet:token-of-the-proxies\nmigrator:movers:token-of-the-migrators",
}
ADDRESSES = {"topom": "127.0.0.1", "proxy-1": "127.0.0.1", "redis-1": "127.0.0.11", "redis-2": "127.0.0.12"}
"""All services share one loopback, and the servers listen at the same port. A second proxy would do so, too."""
LIMIT_SECONDS = 120

pytestmark = pytest.mark.timeout(1150)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where roots are; they take a GiB, which nobody needs afterwards."""
    made = tmp_path_factory.mktemp("roots")
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def image(folder: Path) -> roots.Image:
    """What ``deploy/Dockerfile`` makes, over Debian and its Python in place of an image of Python."""
    roots.require()
    base = roots.bare(folder / "base")
    return roots.build(ROOT / "deploy" / "Dockerfile", ROOT, base, folder / "stages")


@pytest.fixture(scope="module")
def with_others(image: roots.Image, folder: Path) -> roots.Root:
    """The same with Redis and systemd, which the image does not have."""
    root = image.root.above(folder / "others")
    install = "DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y redis-server systemd"
    root.run(["sh", "-ec", f"apt-get -qq update && {install}"], roots.Process())
    # What the image of Redis has; the address is this test's.
    entry = root.own / "usr/local/bin/docker-entrypoint.sh"
    entry.parent.mkdir(parents=True, exist_ok=True)
    entry.write_text('#!/bin/sh\nexec "$@" --bind "$ADDRESS" --protected-mode no\n')
    entry.chmod(0o755)
    return root


def until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + LIMIT_SECONDS
    while not holds():
        assert time.monotonic() < end, f"{what}: not within {LIMIT_SECONDS} s"
        time.sleep(0.2)


def passes(check: Callable[[], object]) -> bool:
    try:
        return check() is not False
    except AssertionError:
        return False


def test_the_image_is_as_its_user_expects(image: roots.Image) -> None:
    assert image.process.user == 8380
    assert image.root.run([*image.entrypoint, "--version"], image.process) == f"slotferry {__version__}\n"
    assert image.root.run(["pwd"], image.process) == "/var/lib/slotferry\n"
    assert image.root.run(["stat", "-c", "%u %a", "/var/lib/slotferry-proxy"], image.process) == "8380 700\n"
    assert not (image.root.own / "source").exists()


def test_the_demo_passes(image: roots.Image, with_others: roots.Root, tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with roots.network() as network:
        process = replace(image.process, read_only=True, volumes={"/tmp": tmp_path}, network=network)
        few = ["--keys", "2000", "--calm", "0.5", "--pace", "0", "--rate", "1000"]
        said = with_others.run([*image.entrypoint, "demo", "--exit", *few], process)
    assert "No error and no lost key" in said


@dataclass
class Service:
    """A service of the compose file as a process."""

    root: roots.Root
    process: roots.Process
    running: subprocess.Popen[bytes]
    check: list[str]

    def is_healthy(self) -> bool:
        """Whether its check passes, which is run beside it."""
        assert self.running.poll() is None, "it has ended"
        return passes(lambda: self.root.run(self.check, self.process))

    def stop(self, seconds: float) -> int:
        """Its status after a SIGTERM."""
        [first] = Path(f"/proc/{self.running.pid}/task/{self.running.pid}/children").read_text().split()
        os.kill(int(first), signal.SIGTERM)
        return self.running.wait(seconds)


@contextmanager
def started(name: str, image: roots.Image, root: roots.Root, folder: Path, network: int) -> Iterator[Service]:
    """A service runs as the compose file says."""
    said = SERVICES[name]
    ours = said["image"] == "slotferry"
    users = (root.own / "etc/passwd").read_text()
    user = image.process.user if ours else int(re.findall(rf"^{said['user']}:x:(\d+):", users, re.M)[0])
    volumes = {"/etc/hosts": folder / "hosts"}
    for volume in said["volumes"]:
        kept = folder / volume.split(":")[0]
        kept.mkdir(mode=0o700)
        os.chown(kept, user, user)
        volumes[volume.split(":")[1]] = kept
    # Where a volume is mounted, there has to be a folder, and where a secret is, a file.
    for there in volumes:
        if there != "/etc/hosts":
            (root.own / there[1:]).mkdir(parents=True, exist_ok=True)
    for secret in said.get("secrets", []):
        place = root.own / "run/secrets" / secret
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
        volumes[f"/run/secrets/{secret}"] = folder / "deploy" / SAID["secrets"][secret]["file"]
    told = {key: str(one) for key, one in said.get("environment", {}).items()}
    process = roots.Process(
        environment=dict(image.process.environment) | {"ADDRESS": ADDRESSES[name]} | told,
        user=user,
        folder=image.process.folder if ours else "/data",
        read_only=said["read_only"],
        volumes=volumes,
        network=network,
    )
    how, *check = said["healthcheck"]["test"]
    # The check of a server asks its own container's address.
    check = check if how == "CMD" else ["sh", "-c", check[0].replace("redis-cli", f"redis-cli -h {ADDRESSES[name]}")]
    command = [*(image.entrypoint if ours else []), *said["command"]]
    with (
        open(folder / f"{name}.log", "wb") as log,
        subprocess.Popen(
            root.command(command, process),
            env=dict(process.environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        ) as running,
    ):
        try:
            yield Service(root, process, running, check)
        except AssertionError:
            print(name, (folder / f"{name}.log").read_text()[-4000:])
            raise
        finally:
            running.kill()


def make_secrets(folder: Path) -> None:
    """Do in this folder what the head of the compose file says first."""
    lines = [line.removeprefix("#     ") for line in COMPOSE.read_text(encoding="utf-8").splitlines()]
    shown = [line for line in lines if "deploy/secrets" in line and not line.startswith(" ")]
    assert len(shown) == 5
    (folder / "deploy").mkdir()
    subprocess.run(["sh", "-euc", "\n".join(shown)], cwd=folder, check=True, timeout=60)


def shown_commands() -> Iterator[list[str]]:
    """What the head of the compose file says to run in topom's container."""
    for line in COMPOSE.read_text(encoding="utf-8").splitlines():
        if found := re.fullmatch(r"#\s+docker compose -f deploy/compose.yaml exec topom (.*)", line):
            yield shlex.split(found[1])


def test_the_services_of_the_compose_file_run(image: roots.Image, with_others: roots.Root, tmp_path: Path) -> None:
    make_secrets(tmp_path)
    (tmp_path / "hosts").write_text("".join(f"{address} {name}\n" for name, address in ADDRESSES.items()))
    with roots.network() as network, ExitStack() as stack:
        link = os.readlink(f"/proc/{network}/ns/net")
        services = {
            name: stack.enter_context(started(name, image, with_others, tmp_path, network)) for name in ADDRESSES
        }
        for name in ("topom", "redis-1", "redis-2"):
            until(services[name].is_healthy, f"{name} is healthy")
        commands = list(shown_commands())
        assert len(commands) == 4
        for command in commands:
            with_others.run(command, services["topom"].process)
        until(services["proxy-1"].is_healthy, "the proxy is healthy")
        client = replace(services["topom"].process, user=0)
        for number in range(20):
            asked = ["redis-cli", "-p", "6380", "set", f"user:{number}", "ada"]
            assert with_others.run(asked, client) == "OK\n"
        kept = [
            len(with_others.run(["redis-cli", "-h", ADDRESSES[name], "keys", "user:*"], client).split())
            for name in ("redis-1", "redis-2")
        ]
        assert sum(kept) == 20
        assert min(kept) > 0
        assert services["proxy-1"].stop(int(SERVICES["proxy-1"]["stop_grace_period"].removesuffix("s"))) == 0
        assert services["topom"].stop(int(SERVICES["topom"]["stop_grace_period"].removesuffix("s"))) == 0
    until(lambda: not roots.within(link), "nothing of it runs any more")


def test_the_units_run_under_systemd(with_others: roots.Root, folder: Path) -> None:
    """Slots move by the stream, first by a migrator of its own unit, then by topom's own, within what a unit allows."""
    root = with_others.above(folder / "units")
    for unit in UNITS:
        place = root.own / "etc/systemd/system" / unit.name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(unit.read_text(encoding="utf-8"))
    secrets = root.own / "etc/slotferry"
    secrets.mkdir(parents=True, exist_ok=True)
    for name, content in TOKENS.items():
        (secrets / name).write_text(content + "\n")
        (secrets / name).chmod(0o640)
    with roots.booted(root) as beside:
        try:
            run_units(beside)
        except AssertionError:
            print(beside("journalctl", "--no-pager", "--lines", "200"))
            raise


def run_units(beside: Callable[..., str]) -> None:
    """Start them, have slots moved, and stop them."""
    names = [unit.name for unit in UNITS]
    told = {"SLOTFERRY_TOPOM": "http://127.0.0.1:8380", "SLOTFERRY_TOKEN": TOKEN}
    until(lambda: passes(lambda: beside("systemctl", "is-active", "basic.target")), "systemd is up")
    beside("chgrp", "slotferry", *(f"/etc/slotferry/{name}" for name in TOKENS))
    for port in ("6379", "6479"):
        beside("redis-server", "--daemonize", "yes", "--port", port, "--dir", "/tmp")
    beside("systemctl", "start", *names)

    def shows(text: str) -> Callable[[], bool]:
        return lambda: passes(lambda: text in beside("slotferry", "status", **told))

    until(shows("migrators"), "a migrator has registered")
    for number, port in enumerate(("6379", "6479"), start=1):
        beside("slotferry", "group", "add", str(number), f"127.0.0.1:{port}", **told)
    beside("slotferry", "slot", "assign", "0-1023", "--to", "1", **told)
    beside("slotferry", "migration", "set", "--way", "stream", **told)
    until(lambda: passes(lambda: beside("redis-cli", "-p", "6380", "-e", "set", "a", "1")), "a proxy serves")
    beside("sh", "-ec", "for n in $(seq 300); do echo set k$n $n; done | redis-cli -e -p 6380")
    beside("slotferry", "slot", "move", "0-511", "--to", "2", **told)
    until(shows(" 512 moved since"), "slots have moved by the unit's migrator")
    beside("systemctl", "stop", "slotferry-migrator")
    beside("slotferry", "slot", "move", "512-1023", "--to", "2", **told)
    until(shows(" 1024 moved since"), "slots have moved by topom's migrator")
    assert len(beside("redis-cli", "-p", "6479", "keys", "k*").split()) == 300
    for name in ("slotferry-topom", "slotferry-proxy"):
        status = beside("sh", "-ec", f"cat /proc/$(systemctl show -p MainPID --value {name})/status")
        held = dict(re.findall(r"^(Seccomp|NoNewPrivs|CapEff|CapBnd|Uid):\t(\S+)", status, re.M))
        assert held["Uid"] != "0"
        assert [int(held[name], 16) for name in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp")] == [0, 0, 1, 2]
    beside("systemctl", "stop", *names)
    for name in names:
        shown = beside("systemctl", "show", "-p", "Result,ExecMainStatus,NRestarts", name)
        assert set(shown.split()) == {"Result=success", "ExecMainStatus=0", "NRestarts=0"}
