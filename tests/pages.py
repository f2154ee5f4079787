"""Runs the command blocks of a page in the order of the page, in one shell, against real processes.

A block is run if its fence says ``sh``, ``console`` or ``python``. In a ``console`` block, lines after ``$`` are
commands; each other line has to be printed by the command above it, in that order, and ``...`` in it stands for
anything. A command whose comment is :data:`STAYS` runs in the background until the page is over; the next one begins
once it serves. A line that begins with :data:`ENDS` ends one of them before. ``python`` blocks with no command between
them are one program. Comments say more:

- A block below ``<!-- not run: REASON -->`` is not run. One below ``<!-- file NAME -->`` becomes that file. Below
  ``<!-- figures vary -->``, a command may print other figures than the block shows.
- A comment that begins with a line ``<!-- first`` has commands that make what the page speaks of, or look at what it
  tells, a line each. ``<!-- first NAME -->`` stands for those of ``tests/setups/NAME.sh``.
- ``<!-- OTHER stands for NAME -->`` has OTHER used in place of an address, a node's name or a path.

The ports that a page names are replaced by free ones. Each page has a home of its own, which is its folder.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slotferry.processes import free_run
from slotferry.redis_server import find_binary

PROXIES = 3
"""How many proxies the largest ``slotferry local`` of a page has, which take ports beside each other."""
STAYS = "# runs until Ctrl-C"
ENDS = "# Ctrl-C: "
"""What follows is how the command begins that Ctrl-C ends, the one that was started last."""
FIRST = "first"
"""The kind of a block that nobody sees."""
RUN = (FIRST, "sh", "console", "python")
KEPT = ("text", "json", "toml", "mermaid", "yaml")
"""Fences that hold no commands. A fence without a word does not say whether it does."""
PORT = re.compile(r"(?<=[:\s])(?:2379|2380|6379|6380|6381|6390|6391|6479|7001|7002|7003|8380|26379)(?![\d.])")
QUICK_SPARK = """spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
spark.sql.shuffle.partitions 2
spark.ui.enabled false
"""
"""What Spark's processes are started with that do little."""
READY = {
    "slotferry local": r'"page".*\}\n',
    "slotferry top": r"\bgroups?\b",
    "slotferry topom": r"\bleading\b",
    "slotferry migrator": r"\bregistered\b",
    "slotferry proxy": r"\bproxy_ready\b",
    "redis-server": r"eady to accept connections|Sentinel ID is",
    "etcd": r"ready to serve client requests",
}
"""What a command that stays prints once it serves."""
BLOCK = re.compile(
    r"(?:^<!-- (?:not run: (?P<reason>.+?)|file (?P<file>\S+)|(?P<varies>figures vary)) -->\n)?"
    r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$",
    re.M | re.S,
)
FIGURE = re.compile(r"\d(?:[\d,]|\\\.)*")
"""A number, where special characters of patterns are escaped."""
BEFORE = re.compile(r"^<!-- first(?: (?P<name>\w+) |\n(?P<text>.*?)^)-->$", re.M | re.S)
SETUPS = Path(__file__).parent / "setups"
STANDS_FOR = re.compile(r"^<!-- (?P<other>\S+) stands for (?P<name>\S+) -->$", re.M)


@dataclass(frozen=True)
class Block:
    """A block of a page.

    ``reason`` says why it is not run, and is empty for one that is. ``file`` is empty, or the file that it becomes.
    ``varies`` is empty, unless any figures may stand in place of those that the block shows.
    """

    line: int
    kind: str
    text: str
    reason: str = ""
    file: str = ""
    varies: str = ""


class PageError(AssertionError):
    """A block did not do what its page says."""


def blocks(page: Path) -> list[Block]:
    """All blocks of a page, in its order."""
    text = page.read_text(encoding="utf-8")
    found = [Block(text.count("\n", 0, one.start("text")), **one.groupdict(default="")) for one in BLOCK.finditer(text)]
    found += [
        Block(text.count("\n", 0, one.start()), FIRST, one["text"] or (SETUPS / f"{one['name']}.sh").read_text("utf-8"))
        for one in BEFORE.finditer(text)
    ]
    return sorted(found, key=lambda block: block.line)


def steps(block: Block) -> Iterator[tuple[str, list[str]]]:
    """Each command of a block with the lines that it has to print."""
    if block.kind == "python":
        yield f"python3 - <<'END_OF_BLOCK'\n{block.text}END_OF_BLOCK", []
        return
    lines = block.text.replace("\\\n", " ").splitlines()
    if block.kind in ("sh", FIRST):
        yield from ((line, []) for line in lines if line.strip() and (line.startswith(ENDS) or line[0] != "#"))
        return
    command: tuple[str, list[str]] | None = None
    for line in lines:
        if line.startswith("$ "):
            if command:
                yield command
            command = line[2:], []
        elif command:
            command[1].append(line)
    if command:
        yield command


class Shell:
    """One shell for a page, whose variables stay from block to block; ends all that it has started.

    ``TOPOM`` and ``TOKEN`` are those of the page's ``slotferry local``, ``SERVER_3`` is the server of its group 3.
    ``REPOSITORY`` is the folder of the project.
    """

    def __init__(self, folder: Path, seconds: float) -> None:
        """
        Args:
            seconds: how long one command may take.
        """
        self._folder, self._seconds = folder, seconds
        self._ports: dict[str, str] = {}
        self._stays: list[tuple[subprocess.Popen[bytes], Path, str]] = []
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SLOTFERRY_")}
        (folder / "bin").mkdir()
        # The server that `slotferry local` takes, too.
        (folder / "bin" / "redis-server").symlink_to(find_binary())
        (folder / "spark").mkdir()
        (folder / "spark" / "spark-defaults.conf").write_text(QUICK_SPARK, encoding="utf-8")
        path = os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), environment["PATH"]])
        self._environment = {
            **environment,
            "PATH": path,
            "HOME": str(folder),
            "REPOSITORY": str(Path(__file__).parents[1]),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "SPARK_CONF_DIR": str(folder / "spark"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self._state = folder / "shell.state"
        self._state.write_text("", encoding="utf-8")

    def __enter__(self) -> "Shell":
        return self

    def __exit__(self, *_: object) -> None:
        for process, _path, _command in reversed(self._stays):
            process.send_signal(signal.SIGTERM)
        for process, _path, _command in reversed(self._stays):
            self._wait(process)

    def with_ports(self, text: str) -> str:
        """The text with a free port for each port that it names, the same one each time."""

        def free(found: re.Match[str]) -> str:
            if found[0] not in self._ports:
                self._ports[found[0]] = str(free_run(PROXIES))
            return self._ports[found[0]]

        return PORT.sub(free, text)

    def write(self, name: str, text: str) -> None:
        """Make a file of the page's folder."""
        (self._folder / name).write_text(self.with_ports(text), encoding="utf-8")

    def run(self, command: str, expected: list[str], varies: bool = False) -> str:
        """Run a command and give what it printed; raises :class:`PageError` if it fails or prints something else."""
        command = self.with_ports(command)
        if command.startswith(ENDS):
            self._end(command.removeprefix(ENDS).strip())
            return ""
        if STAYS in command:
            self._stay(command.partition(STAYS)[0].strip())
            return ""
        # The state of the shell is kept in a file, so a command that hangs can be ended alone.
        text = f"set -ea -o pipefail; . '{self._state}'\n{command}\nexport -p > '{self._state}'"
        try:
            done = subprocess.run(
                ["bash", "-c", text],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=self._seconds,
            )
        except subprocess.TimeoutExpired as error:
            raise PageError(f"{command}\nhas not ended within {self._seconds} s:\n{error.output!r}") from error
        if done.returncode:
            raise PageError(f"{command}\nended with status {done.returncode}:\n{done.stdout}")
        self._check(command, [self.with_ports(line) for line in expected], done.stdout, varies)
        return done.stdout

    def _check(self, command: str, expected: list[str], printed: str, varies: bool) -> None:
        left = iter(" ".join(line.split()) for line in printed.splitlines())
        for line in filter(lambda line: line.strip(" ."), expected):
            words = (re.escape(part) for part in " ".join(line.split()).split("..."))
            pattern = re.compile(FIGURE.sub(r"[\\d.,]+", ".*".join(words)) if varies else ".*".join(words))
            if not any(pattern.fullmatch(found) for found in left):
                raise PageError(f"{command}\ndoes not print, in this order:\n{line}\nbut:\n{printed}")

    def _stay(self, command: str) -> None:
        output = self._folder / f"stays-{len(self._stays)}.log"
        with output.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-c", f". '{self._state}'; exec env {command}"],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self._stays.append((process, output, command))
        [ready] = [pattern for name, pattern in READY.items() if re.search(rf"(?:^|\s){name}\b", command)]
        end = time.monotonic() + self._seconds
        while not re.search(ready, output.read_text(encoding="utf-8", errors="replace")):
            if process.poll() is not None or time.monotonic() > end:
                text = output.read_text(encoding="utf-8", errors="replace")
                raise PageError(f"{command}\ndoes not serve (status {process.poll()}):\n{text}")
            time.sleep(0.05)
        if "slotferry local" in command:
            [told] = [line for line in output.read_text(encoding="utf-8").splitlines() if line.startswith("{")]
            self._know(json.loads(told))

    def _know(self, cluster: dict[str, Any]) -> None:
        """What a ``slotferry local`` has printed becomes variables."""
        known = {"TOPOM": cluster["topom"], "TOKEN": cluster["token"]}
        known |= {f"SERVER_{group}": servers[0] for group, servers in cluster["groups"].items()}
        with self._state.open("a", encoding="utf-8") as file:
            file.writelines(f"export {name}={shlex.quote(value)}\n" for name, value in known.items())

    def _end(self, beginning: str) -> None:
        """End what was started last with a command that has this beginning, behind its variables."""
        [*_, found] = [stays for stays in self._stays if re.search(rf"(?:^|\s){re.escape(beginning)}", stays[2])]
        self._stays.remove(found)
        found[0].send_signal(signal.SIGINT)
        self._wait(found[0])

    @staticmethod
    def _wait(process: subprocess.Popen[bytes]) -> None:
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


def together(page: Path) -> Iterator[Block]:
    """The blocks of a page that are run or become a file; those of Python that follow each other are one."""
    program: Block | None = None
    for block in blocks(page):
        if block.reason or not (block.kind in RUN or block.file):
            continue
        if block.kind == "python":
            program = replace(program, text=f"{program.text}\n{block.text}") if program else block
            continue
        if program:
            yield program
            program = None
        yield block
    if program:
        yield program


def run(page: Path, folder: Path, seconds: float = 90.0) -> int:
    """Run all blocks of a page that are to be run; gives how many commands that were, with one for each file."""
    count = 0
    stands = [(one["name"], one["other"]) for one in STANDS_FOR.finditer(page.read_text(encoding="utf-8"))]

    def as_here(text: str) -> str:
        for name, other in stands:
            text = text.replace(name, other)
        return text

    with Shell(folder, seconds) as shell:
        for block in together(page):
            if block.file:
                shell.write(block.file, as_here(block.text))
                count += 1
                continue
            for command, expected in steps(block):
                try:
                    shell.run(as_here(command), [as_here(line) for line in expected], bool(block.varies))
                except PageError as error:
                    raise PageError(f"{page.name}:{block.line}: {error}") from None
                count += 1
    return count
