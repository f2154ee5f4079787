"""The version, as metrics and other processes are told."""

from importlib import metadata

import pytest

import slotferry
from slots.version import build_info, program_version


def test_the_version_is_that_of_the_package() -> None:
    assert program_version() == slotferry.__version__
    (sample,) = build_info("slotferry_proxy").samples
    assert (sample.name, sample.labels, sample.value) == (
        "slotferry_proxy_build_info",
        {"version": slotferry.__version__},
        1,
    )


def test_what_is_not_installed_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    assert program_version() == "0"
