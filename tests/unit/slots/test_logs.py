"""Whatever a process logs, its own events and what libraries say, each line is one event."""

import json
import socket
import subprocess
import sys

import pytest

SAID = """
import asyncio, logging, warnings
from slots import logs

logs.configure("info")
logging.getLogger("uvicorn.error").info("Started server process [%d]", 7)
logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
logging.getLogger("uvicorn.error").warning("%d of them", "many")
warnings.warn("it goes in the next version")

async def main():
    async def fail():
        raise ValueError("nobody waits for it")
    task = asyncio.create_task(fail())
    await asyncio.sleep(0)
    del task

asyncio.run(main())
"""


def test_what_libraries_log_is_an_event_like_any_other() -> None:
    done = subprocess.run([sys.executable, "-c", SAID], capture_output=True, text=True, timeout=60, check=True)
    said = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(one["event"], one["library"], one["level"]) for one in said] == [
        ("library_said", "uvicorn.error", "warning"),
        ("library_said", "uvicorn.error", "warning"),
        ("library_said", "py.warnings", "warning"),
        ("library_said", "asyncio", "error"),
    ]
    assert [one["text"] for one in said[:2]] == ["Invalid HTTP request received.", "%d of them"]
    assert "it goes in the next version" in said[2]["text"]
    assert "ValueError: nobody waits for it" in said[3]["exception"]


ANSWERED = """
import structlog
from slots import logs

logs.configure("info")
logs.set_level("error")
structlog.get_logger().info("settings_reloaded", changed=["log_level"])
structlog.get_logger().warning("worker_did_not_drain")
"""


def test_what_came_of_a_reload_is_logged_at_every_level() -> None:
    done = subprocess.run([sys.executable, "-c", ANSWERED], capture_output=True, text=True, timeout=60, check=True)
    assert [json.loads(line)["event"] for line in done.stderr.splitlines()] == ["settings_reloaded"]


MANY = """
import structlog
from slots import logs

logs.configure("info")
for number in range(3):
    structlog.get_logger().info("said", number=number)
"""


@pytest.mark.parametrize("options", [(), ("-u",)], ids=["as it is", "unbuffered"])
def test_each_event_is_one_write_so_that_processes_can_share_a_file(options: tuple[str, ...]) -> None:
    # A socket of this type keeps writes apart.
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        subprocess.run([sys.executable, *options, "-c", MANY], stderr=theirs, timeout=60, check=True)
        for number in range(3):
            line = ours.recv(65536)
            assert line.endswith(b"\n")
            assert json.loads(line)["number"] == number
