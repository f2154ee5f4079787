"""What a topom or a proxy consists of, imported before it is forked off (:mod:`tests.forking`)."""

import cli.main
import proxy.supervisor  # noqa: F401
import topom.server  # noqa: F401


def main() -> None:
    """The command ``slotferry``."""
    cli.main.main()
