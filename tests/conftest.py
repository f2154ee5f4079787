"""Clusters start quickly; tests are spread over processes as :mod:`tests.scheduling` says; and no test hangs: one that
its own time limit does not end is ended with its process, and what it waits for is shown."""

import asyncio
import faulthandler
import gc
import os
import signal
import sys
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from slotferry import processes
from slotferry.processes import ManagedProcess
from slots.python import PYTHON
from tests import scheduling, searching
from tests.forking import fork, imports_more

for _number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        # A run under nohup goes on without its terminal, and one in a shell's background despite Ctrl-C. What tests
        # start has these signals as they mostly are: a handler is not inherited, and to ignore a signal is.
        signal.signal(_number, lambda number, frame: None)

MOST_SECONDS = 1200
"""For one test with its fixtures: more than any test's own limit."""
TESTS = Path(__file__).parent
LONG = (
    "fuzz",
    "integration/faults",
    "integration/histories",
    "integration/sizing/test_runs.py",
    "integration/slotferry/test_wheels.py",
    "integration/test_documents.py",
    "integration/test_image.py",
    "integration/test_model.py",
    "integration/upgrades",
    "unit/topom/test_odd_servers.py",
)
"""What searches for long. It is left out of a run that names no tests, unless ``--long`` is given. So are single tests
that are marked ``long``: those that took longer than two seconds, or ten with all their parameters, on two busy
cores, and that are not the ones that show what a room is for."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--long``."""
    parser.addoption("--long", action="store_true", help=f"run what searches for long, too: {', '.join(LONG)}")


def left_out(long: bool, named: bool) -> list[str]:
    """Files and folders that a run leaves out, if it is told ``--long``, or names what it runs."""
    return [] if long or named else [str(TESTS / name) for name in LONG]


def leaves_out(config: pytest.Config) -> bool:
    """Whether a run leaves out what searches for long."""
    return str(TESTS / LONG[0]) in (config.option.ignore or ())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> scheduling.Scheduling | None:
    """With ``--dist loadfile``, what more files share is started once, too."""
    return scheduling.Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked ``long`` are left out as :data:`LONG` is. Of tests that processes share, the longest begin."""
    if leaves_out(config):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("long")])
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    if hasattr(config, "workerinput"):
        scheduling.sort(items)


def pytest_collection_finish() -> None:
    """What was collected stays until the end: a million objects that garbage collection need not look at each time."""
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """What searches for long is left out, and other searches look at fewer examples.

    Each process that tests are spread over has ports of its own: where one of its servers is started again, no other
    process starts one meanwhile. They come in tens, for some need several beside each other.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None:
        named = config.args_source is pytest.Config.ArgsSource.ARGS
        config.option.ignore = [*(config.option.ignore or ()), *left_out(config.getoption("long"), named)]
        searching.choose(not leaves_out(config))
    else:
        # A worker gets all arguments as if somebody had named them.
        config.option.ignore = worker["ignore"]
        searching.choose(not leaves_out(config))
        number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
        processes._PORTS = [port for port in processes._PORTS if port // 10 % count == number % count]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """A process that tests are spread over leaves out the same."""
    node.workerinput["ignore"] = node.config.option.ignore


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how the rest is run."""
    if leaves_out(config):
        terminalreporter.write_line(
            f"left out: tests marked long, {', '.join(LONG)}; ./scripts/test --long runs them, too"
        )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """pytest-timeout raises once, in the test; what hangs in the clean-up after that is left to this."""
    watch = threading.Timer(MOST_SECONDS, _give_up, (item.nodeid,))
    watch.daemon = True
    watch.start()
    try:
        return (yield)
    finally:
        watch.cancel()


def _give_up(name: str) -> None:
    out = sys.__stderr__ or sys.stderr
    print(f"\n{name} has not ended within {MOST_SECONDS} s; its process ends here. Threads:", file=out, flush=True)
    faulthandler.dump_traceback(out)
    for task in [found for found in gc.get_objects() if isinstance(found, asyncio.Task) and not found.done()]:
        task.print_stack(file=out)
    out.flush()
    os._exit(70)


@pytest.fixture(scope="session", autouse=True)
def _contexts_are_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The user's contexts are neither read nor changed."""
    with pytest.MonkeyPatch.context() as patching:
        patching.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        patching.delenv("SLOTFERRY_CONTEXT", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _commands_are_forked() -> Iterator[None]:
    """A topom or a proxy of a cluster is forked from a process that has imported all; the command itself has tests."""
    spawn = ManagedProcess._spawn
    python_path = os.environ.get("PYTHONPATH", "")

    def forked(self: ManagedProcess, output: Any, parent: int) -> Any:
        environment = os.environ if self.environment is None else self.environment
        ours = self.arguments in ([*PYTHON, "-m", "slotferry", process] for process in ("topom", "proxy"))
        # What Python is to import at its start it imports at a real one only.
        if not ours or imports_more(environment, python_path):
            return spawn(self, output, parent)
        with open(os.devnull, "rb") as nothing:
            descriptors = {0: nothing.fileno(), 1: output.fileno(), 2: output.fileno()}
            return fork("tests.starting", self.arguments[len(PYTHON) + 2 :], descriptors, environment)

    with pytest.MonkeyPatch.context() as patching:
        if sys.platform == "linux":
            patching.setattr(ManagedProcess, "_spawn", forked)
            # Some are stopped just then.
            patching.setattr(ManagedProcess, "orphaned", signal.SIGKILL)
        yield
