"""Root file systems in which the steps of an image and its processes run, where there is no container engine.

A root is a layer over others, as an image is. What runs there sees nothing else of this machine's files, has its own
processes, and may have its own network. Nothing stays mounted: each process mounts the root for itself. It takes Linux,
root, and debootstrap with a mirror of Debian within reach.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path

import pytest

SUITE = "bookworm"
PACKAGES = ("ca-certificates", "python3", "python3-dev", "python3-venv")
"""What an image of Python has."""
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_BOUND = ("setpriv", "--pdeathsig", "KILL")
"""What runs in a root ends with who started it."""


def require() -> None:
    """Pass a test over where there can be no root, unless ``SLOTFERRY_REQUIRE_ROOTS=1`` says that there has to be."""
    missing = ""
    if sys.platform != "linux" or os.geteuid() != 0:
        missing = "root on Linux"
    elif shutil.which("debootstrap") is None:
        missing = "debootstrap (on Debian and Ubuntu: apt-get install debootstrap)"
    if missing and os.environ.get("SLOTFERRY_REQUIRE_ROOTS") == "1":
        pytest.fail(f"SLOTFERRY_REQUIRE_ROOTS=1, but it takes {missing}")
    if missing:
        pytest.skip(f"it takes {missing}")


@dataclass(frozen=True)
class Root:
    """A root file system.

    Args:
        folder: where what is written to it is kept.
        layers: folders below it, the uppermost one first.
    """

    folder: Path
    layers: tuple[Path, ...] = ()

    @property
    def own(self) -> Path:
        """What has been written to it."""
        return self.folder / "own"

    def above(self, folder: Path) -> Root:
        """A root over this one."""
        made = Root(folder, (self.own, *self.layers))
        for name in ("own", "work", "root"):
            (folder / name).mkdir(parents=True)
        return made

    def mounting(self, read_only: bool = False) -> list[str]:
        """Lines of shell that mount it."""
        layers = ":".join(map(str, self.layers))
        if read_only:
            options = f"lowerdir={self.own}:{layers}"
        else:
            options = f"lowerdir={layers},upperdir={self.own},workdir={self.folder / 'work'}"
        root = shlex.quote(str(self.folder / "root"))
        return [
            "set -e",
            f"mount -t overlay overlay -o {shlex.quote(options)} {root}",
            f"mount -t proc proc {root}/proc",
        ]

    def command(self, command: Sequence[str], process: Process) -> list[str]:
        """What runs a command there; to kill it ends all that runs with it."""
        root = shlex.quote(str(self.folder / "root"))
        lines = [
            *self.mounting(process.read_only),
            f"mount --rbind /dev {root}/dev",
            *(f"mount --bind {shlex.quote(str(here))} {root}{there}" for there, here in process.volumes.items()),
        ]
        held = [] if process.user == 0 else ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
        ids = ["--reuid", str(process.user), "--regid", str(process.user), "--clear-groups"]
        # With another user, the kernel forgets that a process is to end with its parent.
        ids += ["--pdeathsig", "KILL"]
        inner = ["setpriv", *ids, *held, "env", f"--chdir={process.folder}", *command]
        lines.append(f"exec chroot {root} {shlex.join(inner)}")
        entered = [] if process.network is None else ["nsenter", f"--net=/proc/{process.network}/ns/net"]
        apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c"]
        return [*_BOUND, *entered, *apart, "\n".join(lines)]

    def run(self, command: Sequence[str], process: Process, seconds: float = 900) -> str:
        """Run a command there to its good end; gives what it says."""
        done = subprocess.run(
            self.command(command, process),
            env=dict(process.environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
        assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        return done.stdout


@dataclass(frozen=True)
class Process:
    """How something runs in a root: by default as root of this machine, in its network.

    Args:
        read_only: whether the root is.
        volumes: folders and files of this machine, by where they are in the root.
        network: the process whose network it has; None: this machine's.
    """

    environment: Mapping[str, str] = field(default_factory=lambda: {"PATH": PATH})
    user: int = 0
    folder: str = "/"
    read_only: bool = False
    volumes: Mapping[str, Path] = field(default_factory=dict)
    network: int | None = None


def bare(folder: Path) -> Root:
    """A root with Debian and its Python, by the name that images of Python give it."""
    root = Root(folder)
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, root.own]
    folder.mkdir(parents=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (root.own / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    # A package starts no server of its own.
    never = root.own / "usr/sbin/policy-rc.d"
    never.write_text("#!/bin/sh\nexit 101\n")
    never.chmod(0o755)
    # Its tools trust and find the same machines as this one's.
    shutil.copy(AUTHORITIES, root.own / str(AUTHORITIES)[1:])
    shutil.copy("/etc/resolv.conf", root.own / "etc/resolv.conf")
    shutil.copy("/etc/hosts", root.own / "etc/hosts")
    return root


@dataclass
class Image:
    """What the steps of a Dockerfile make."""

    root: Root
    process: Process
    entrypoint: list[str] = field(default_factory=list)


def build(dockerfile: Path, context: Path, base: Root, folder: Path) -> Image:
    """Do what a Dockerfile says; each stage begins with the base, whatever it is to begin with."""
    stages: dict[str, Image] = {}
    image: Image | None = None
    ignored = _ignored(dockerfile.with_name(f"{dockerfile.name}.dockerignore"))
    for word, rest in _steps(dockerfile.read_text(encoding="utf-8")):
        if word == "FROM":
            name = rest.split(" AS ")[1] if " AS " in rest else str(len(stages))
            image = stages[name] = Image(base.above(folder / name), Process())
            continue
        assert image is not None, "a Dockerfile begins with FROM"
        if word == "RUN":
            # pip of this machine may be told of an index.
            told = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
            process = replace(image.process, environment=told | dict(image.process.environment))
            image.root.run(["sh", "-c", rest], process)
        elif word == "COPY":
            _copy(rest, image, stages, context, ignored)
        elif word == "USER":
            image.process = replace(image.process, user=int(rest))
        elif word == "WORKDIR":
            image.process = replace(image.process, folder=rest)
        elif word == "ENV":
            name, value = rest.split("=", 1)
            known = dict(image.process.environment)
            image.process = replace(image.process, environment=known | {name: _filled(value, known)})
        elif word == "ENTRYPOINT":
            image.entrypoint = json.loads(rest)
        else:
            raise ValueError(f"{word} is not known here")
    assert image is not None
    return image


def _steps(text: str) -> Iterator[tuple[str, str]]:
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for line in lines.replace("\\\n", " ").splitlines():
        if line.strip():
            word, rest = line.split(None, 1)
            yield word, rest.strip()


def _filled(value: str, known: Mapping[str, str]) -> str:
    return re.sub(r"\$(\w+)", lambda found: known[found[1]], value)


def _ignored(file: Path) -> list[str]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def _is_ignored(path: str, patterns: Sequence[str]) -> bool:
    name = path.rsplit("/", 1)[-1]
    return any(fnmatch(name, one[3:]) if one.startswith("**/") else fnmatch(path, one) for one in patterns)


def _copy(rest: str, image: Image, stages: Mapping[str, Image], context: Path, ignored: Sequence[str]) -> None:
    """A folder is copied as what is in it, and one of another stage has to have been made there."""
    *options, target = rest.split()
    source = context
    patterns = ignored
    if options[0].startswith("--from="):
        source, patterns = stages[options.pop(0).removeprefix("--from=")].root.own, ()
    there = image.root.own / target.lstrip("/")
    for option in options:
        found = [source] if option == "." else sorted(source.glob(option.lstrip("/")))
        assert found, f"COPY {rest}: there is no {option}"
        for path in found:
            if not path.is_dir():
                there.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, there)
                continue

            def left_out(folder: str, names: list[str], top: Path = path) -> list[str]:
                below = Path(folder).relative_to(top)
                return [name for name in names if _is_ignored(str(below / name), patterns)]

            shutil.copytree(path, there, symlinks=True, ignore=left_out, dirs_exist_ok=True)


_NETWORK = """
import fcntl, socket, struct, sys
with socket.socket() as any_socket:
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 0x41))  # SIOCSIFFLAGS: up and running
print("up", flush=True)
sys.stdin.read()
"""


@contextmanager
def network() -> Iterator[int]:
    """A network with a loopback of its own; gives the process that has it."""
    command = [*_BOUND, "unshare", "--net", sys.executable, "-c", _NETWORK]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "up\n"
        yield holder.pid


def within(network: str) -> list[int]:
    """The processes in a network, by what the link to it says."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if os.readlink(process / "ns/net") == network:
                found.append(int(process.name))
    return found


@contextmanager
def booted(root: Root) -> Iterator[Callable[..., str]]:
    """A systemd runs there, with control groups and a network of its own; gives what runs a command beside it."""
    top = shlex.quote(str(root.folder / "root"))
    groups = f"{top}/sys/fs/cgroup"
    lines = [
        *root.mounting(),
        f"mount -t sysfs sysfs {top}/sys",
        f"mount -t tmpfs tmpfs {groups}",
        f"mkdir {groups}/unified {groups}/systemd",
        f"mount -t cgroup2 cgroup2 {groups}/unified",
        f"mount -t cgroup -o none,name=systemd cgroup {groups}/systemd",
        *(f"mount -t tmpfs tmpfs {top}/{name}" for name in ("run", "tmp", "dev")),
        f"for name in null zero full random urandom tty; do touch {top}/dev/$name; "
        f"mount --bind /dev/$name {top}/dev/$name; done",
        f"mkdir {top}/dev/pts {top}/dev/shm",
        f"mount -t devpts devpts {top}/dev/pts -o newinstance,ptmxmode=0666",
        f"ln -s pts/ptmx {top}/dev/ptmx",
        f"ln -s /proc/self/fd {top}/dev/fd",
        f"exec chroot {top} env -i container=lxc PATH={PATH} "
        "/lib/systemd/systemd --system --show-status=no --unit=basic.target",
    ]
    apart = ["unshare", "--mount", "--pid", "--uts", "--ipc", "--cgroup", "--fork", "--kill-child"]
    with network() as holder:
        entered = [*_BOUND, "nsenter", f"--net=/proc/{holder}/ns/net", *apart]
        with subprocess.Popen([*entered, "sh", "-c", "\n".join(lines)], stdin=subprocess.DEVNULL) as outer:
            try:
                first = _first(outer, "systemd")
                yield lambda *command, **variables: _beside(first, command, variables)
            finally:
                outer.kill()


def _first(outer: subprocess.Popen[bytes], name: str) -> int:
    """The process below that runs this program, once it does."""
    end = time.monotonic() + 60
    while time.monotonic() < end and outer.poll() is None:
        for found in Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split():
            if Path(f"/proc/{found}/comm").read_text().strip() == name:
                return int(found)
        time.sleep(0.05)
    raise AssertionError(f"{name} does not run")


def _beside(first: int, command: Sequence[str], variables: Mapping[str, str]) -> str:
    inside = [
        "nsenter",
        f"--target={first}",
        "--mount",
        "--pid",
        "--net",
        "--uts",
        "--ipc",
        "--cgroup",
        "--root",
        "--wd",
    ]
    told = [f"{name}={value}" for name, value in ({"PATH": f"/opt/slotferry/bin:{PATH}"} | dict(variables)).items()]
    done = subprocess.run(
        [*inside, "env", "-i", *told, *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout
