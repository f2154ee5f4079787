"""What the command ``slotferry`` imports when it runs, imported before it is forked off (:mod:`tests.forking`)."""

import typer._adapters  # noqa: F401

from slotferry.main import main as main
