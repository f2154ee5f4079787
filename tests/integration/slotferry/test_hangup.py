"""A terminal that is closed ends the throw-away cluster and the demo, which leave nothing; ``nohup`` keeps them."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis import Redis

from slotferry.local import environment_of
from tests.integration.slotferry.test_local import alive, children_of


@contextmanager
def on_a_terminal(temporary: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The command in the foreground of a terminal of its own, and the other side of that."""
    ours, its = os.openpty()

    def take() -> None:
        fcntl.ioctl(its, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)

    settings = environment_of("", {}) | {"TMPDIR": str(temporary), "XDG_CONFIG_HOME": str(temporary.parent)}
    command = [sys.executable, "-m", "slotferry", *arguments]
    with subprocess.Popen(
        command, env=settings, stdin=its, stdout=its, stderr=its, start_new_session=True, preexec_fn=take
    ) as process:
        os.close(its)
        try:
            yield process, ours
        finally:
            if process.poll() is None:
                process.kill()


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "stage"),
    [
        (("local", "--groups", "1"), "Ctrl-C ends it"),
        (("demo", "--keys", "3000", "--calm", "1", "--pace", "100"), "slots move to group"),
    ],
    ids=["local", "demo"],
)
def test_the_end_of_the_terminal_leaves_nothing(tmp_path: Path, arguments: tuple[str, ...], stage: str) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with on_a_terminal(temporary, *arguments) as (process, terminal):
        said = b""
        while stage.encode() not in said:
            said += os.read(terminal, 65536)
        children = children_of(process.pid)
        assert len(alive(children)) >= 3
        os.close(terminal)
        process.wait(60)
    assert alive(children) == []
    assert list(temporary.iterdir()) == []


@pytest.mark.long
def test_nohup_keeps_it(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()

    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    settings = environment_of("", {}) | {"TMPDIR": str(temporary), "XDG_CONFIG_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "slotferry", "local", "--groups", "1"]
    with subprocess.Popen(
        command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, preexec_fn=ignore
    ) as process:
        try:
            assert process.stdout is not None
            line = json.loads(process.stdout.readline())
            process.send_signal(signal.SIGHUP)
            with Redis.from_url(f"redis://{line['proxies'][0]}") as client:
                for number in range(100):
                    assert client.set(f"key:{number}", "value")
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            if process.poll() is None:
                process.kill()
    assert list(temporary.iterdir()) == []
