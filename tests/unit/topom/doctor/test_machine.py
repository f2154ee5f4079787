"""Which servers are known to run on this machine."""

import os
from pathlib import Path

import pytest

from slots.replies import Info
from topom.doctor import machine
from topom.doctor.facts import KernelFacts

HERE = f"{os.uname().sysname} {os.uname().release} {os.uname().machine}"
TOLD = {"process_id": 7, "os": HERE, "executable": "/usr/bin/redis-server-of-mine"}


@pytest.fixture(autouse=True)
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in {
        "7/comm": "redis-server-of\n",
        "sys/vm/overcommit_memory": "1\n",
        "sys/net/core/somaxconn": "4096\n",
        "huge": "always [madvise] never\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(machine, "PROC", tmp_path)
    monkeypatch.setattr(machine, "HUGE_PAGES", tmp_path / "huge")
    return tmp_path


def test_a_server_beside_topom(proc: Path) -> None:
    assert machine.kernel_of("127.0.0.1:6379", Info(TOLD)) == KernelFacts(1, False, 4096)
    (proc / "huge").write_text("[always] madvise never\n")
    (proc / "sys/vm/overcommit_memory").write_text("x")
    (proc / "sys/net/core/somaxconn").unlink()
    assert machine.kernel_of("127.0.0.1:6379", Info(TOLD)) == KernelFacts(None, True, None)


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("10.0.0.1:6379", {}),
        ("127.0.0.1:6379", {"os": "Linux 3.10.0 x86_64"}),
        ("127.0.0.1:6379", {"process_id": 8}),
        ("127.0.0.1:6379", {"process_id": "7"}),
        ("127.0.0.1:6379", {"executable": "/usr/bin/valkey-server"}),
        ("127.0.0.1:6379", {"executable": ""}),
    ],
)
def test_a_server_of_which_that_is_not_sure(address: str, told: dict[str, object]) -> None:
    assert machine.kernel_of(address, Info({**TOLD, **told})) is None
