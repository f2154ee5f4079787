"""A real browser for tests of the page: Debian's Chromium, driven by Playwright.

A test that needs it is passed over where it is missing, unless ``SLOTFERRY_REQUIRE_BROWSER=1`` says that it has to be
there. The browser and Playwright's driver end with the block, also when the start fails or the browser hangs.
"""

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil
import pytest

START_SECONDS = 60
STEP_MILLISECONDS = 10_000
"""How long one step in a page may take."""
NAMES = ("chromium", "chromium-browser", "google-chrome-stable")
ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


class NoBrowserError(Exception):
    """There is no browser here, or nothing that drives it; the message says what is missing."""


def find() -> str:
    """The browser's path. Raises NoBrowserError."""
    try:
        import playwright  # noqa: F401
    except ImportError:
        raise NoBrowserError("the Python package playwright is not installed") from None
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        raise NoBrowserError(f"none of {', '.join(NAMES)} is on PATH (on Debian: apt-get install chromium)")
    return found


def binary() -> str:
    """The browser's path. The test is passed over if there is none, or no Playwright."""
    try:
        return find()
    except NoBrowserError as error:
        missing = str(error)
    if os.environ.get("SLOTFERRY_REQUIRE_BROWSER") == "1":
        pytest.fail(f"SLOTFERRY_REQUIRE_BROWSER=1, but {missing}")
    pytest.skip(missing)


@contextmanager
def browser() -> Iterator[Any]:
    """A browser with a fresh profile, as Playwright's ``Browser``."""
    path = binary()
    from playwright.sync_api import sync_playwright

    before = _children()
    try:
        with _watched(START_SECONDS, before):
            playwright = sync_playwright().start()
        try:
            with _watched(START_SECONDS, before):
                started = playwright.chromium.launch(
                    executable_path=path, args=[*ARGUMENTS], timeout=START_SECONDS * 1000, handle_sigint=False
                )
            yield started
            with _watched(START_SECONDS, before):
                started.close()
        finally:
            with _watched(START_SECONDS, before):
                playwright.stop()
    finally:
        _end(before)


@contextmanager
def watched(seconds: float) -> Iterator[None]:
    """End every browser of this process, with its driver, if the block takes longer: whatever waits for a browser that
    hangs goes on with an error then. pytest's own limit would interrupt Playwright's loop, which then never ends."""
    with _watched(seconds, set()):
        yield


@contextmanager
def _watched(seconds: float, before: set[int]) -> Iterator[None]:
    watch = threading.Timer(seconds, _end, (before,))
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()


def _children() -> set[int]:
    return {process.pid for process in psutil.Process().children(recursive=True)}


def _end(before: set[int]) -> None:
    """End what was started since, by its number."""
    for process in psutil.Process().children(recursive=True):
        names = ("node", *NAMES)
        with suppress(psutil.Error):
            if process.pid not in before and any(name in process.name() for name in names):
                process.send_signal(signal.SIGKILL)
