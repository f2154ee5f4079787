"""Starts one of Slotferry's processes with a planted fault: ``python -m tests.histories.launcher FAULT PROCESS``.

PROCESS is ``topom``, ``migrator`` (the one that topom starts), ``proxy`` or ``worker``, or one of the last two with
``first-`` before it: of the cluster's first proxy. The settings come as always.
"""

import sys
from collections.abc import Sequence

from tests.histories.planted import PLANTED


def main(arguments: Sequence[str]) -> int:
    """Plant the fault if it is for this process, and run it to its end."""
    fault, process, *rest = arguments
    where, plant = PLANTED[fault]
    if where in ("all", process, process.removeprefix("first-")):
        plant()
    # Imported here: what is planted has to be there before.
    if process == "migrator":
        from migrator.process import child as migrator_child

        return migrator_child.main()
    if process == "topom":
        from topom import server
        from topom.migrators import child
        from topom.term.settings import TopomSettings

        child.COMMAND = (sys.executable, "-m", "tests.histories.launcher", fault, "migrator")  # type: ignore[assignment]
        return server.run(TopomSettings.load())
    if process.endswith("proxy"):
        from proxy.settings import ProxySettings
        from proxy.supervisor import supervisor

        worker = process.replace("proxy", "worker")
        return supervisor.run(ProxySettings.load(), (sys.executable, "-m", "tests.histories.launcher", fault, worker))
    from proxy.worker import worker as worker_process

    sys.argv = ["proxy.worker.worker", *rest]
    worker_process.main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
