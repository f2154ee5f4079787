"""The fuzzer for a moment, the same inputs each time; ``scripts/fuzz`` runs it for longer."""

import re
import subprocess
import sys

import pytest

from tests.fuzz import build

INPUTS = 60_000


def fuzz(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *options],
        cwd=build.ROOT,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )


def test_whatever_comes_is_parsed_as_it_should_be() -> None:
    # If the compiler has no sanitizer, it runs without one: the comparisons are the same.
    result = fuzz("--inputs", str(INPUTS))
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(rf"^{INPUTS} inputs in \d+ s, seed 1: all held$", result.stdout, re.MULTILINE), result.stdout


@pytest.mark.parametrize("sanitized", sorted({any(flavour.sanitized for flavour in build.flavours())}))
def test_a_byte_read_too_far_is_noticed(sanitized: bool) -> None:
    result = fuzz("--read-too-far")
    if sanitized:
        assert "AddressSanitizer: heap-buffer-overflow" in result.stderr, result.stdout + result.stderr
        assert result.returncode
    else:
        assert "WITHOUT AddressSanitizer" in result.stdout
