"""How a process of Slotferry's own starts another one."""

import sys

PYTHON: tuple[str, ...] = (sys.executable, "-P")
"""This Python, with the modules of its installation alone. Without ``-P``, a folder ``slots`` or ``topom`` where the
command is given would win, such as that of a checkout whose compiled modules are not built."""
TOLD: tuple[str, ...] = ("/bin/sh", "-c", 'trap "" HUP; exec "$@"', "sh", *PYTHON)
"""The same for a process that another one tells of settings. SIGHUP does nothing to it, also before Python runs: who
sends it to all processes of a name, or of a unit, means none of these."""
