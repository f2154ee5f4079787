"""The frameworks that are tried, and how each of them is run."""

import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.clients import javascript
from tests.integration.frameworks.harness import APART, Product, Program

CROSS_SLOT = re.compile("CROSSSLOT|CrossSlotError")


@dataclass(frozen=True)
class Framework:
    """A framework's program.

    Attributes:
        name: for the test.
        program: the file.
        profiles: the profiles that it needs; none if it works without.
        work, probe: what the program is told, for all that it does and for the first step that needs rules.
        apart: the folder with the framework, if that is not this environment.
    """

    name: str
    program: str
    profiles: Sequence[str]
    work: str = "work"
    probe: str = "probe"
    apart: str = ""

    def found(self) -> Program:
        """The program; the test is passed over where the framework's language is missing."""
        match Path(self.program).suffix:
            case ".py":
                apart = [APART / self.apart] if self.apart else []
                if not all(path.is_dir() for path in apart):
                    pytest.fail(f"{self.apart} is not in {APART}: run ./scripts/test, which installs it", pytrace=False)
                return Program([sys.executable, self.program], paths=apart)
            case ".mjs":
                return Program([javascript.find_node(), self.program], folder=javascript.FOLDER)
            case ".rb":
                return Program([_installed("ruby"), self.program])
            case other:
                assert other == ".php"
                return Program([_installed("php"), self.program])


def _installed(language: str) -> str:
    found = shutil.which(language)
    if found is None or not _has_framework(language):
        reason = f"{language} or its framework is not installed: .ci/run has Debian's packages"
        if os.environ.get("SLOTFERRY_REQUIRE_FRAMEWORKS"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return found


def _has_framework(language: str) -> bool:
    places = {"ruby": "/usr/share/rubygems-integration/all/gems", "php": "/usr/share/php/Illuminate/Queue"}
    place = Path(places[language])
    return place.is_dir() and (language != "ruby" or any(place.glob("sidekiq-*")))


async def assert_works(framework: Framework, product: Product, one_redis: tuple[str, int]) -> None:
    """It does the same as on one Redis, while all slots move, and leaves each key where it belongs."""
    program = framework.found()
    status, expected, log = await program.run(one_redis, framework.work)
    assert status == 0, log
    async with product.moving():
        status, seen, log = await program.run(product.address, framework.work)
    assert status == 0, log[-6000:]
    assert seen == expected, f"{seen}\nis not\n{expected}\n{log[-6000:]}"
    moved = await product.keys_moved()
    assert product.moves >= 2
    assert moved
    await product.assert_owned()
    print(f"{product.moves} moves, {moved} keys moved\n{log[-3000:]}")


async def assert_needs_rules(framework: Framework, product: Product) -> None:
    """Without its profile it is refused at its first step. If it is not, the profile is needed no more."""
    assert not product.worker.table.rules
    status, seen, log = await framework.found().run(product.address, framework.probe)
    assert CROSS_SLOT.search(log), (status, seen, log)
