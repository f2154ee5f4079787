"""How a process of Slotferry's own starts another one."""

import sys

PYTHON: tuple[str, ...] = (sys.executable, "-P")
"""This Python, with the modules of its installation alone. Without ``-P``, a folder ``slots`` or ``topom`` where the
command is given would win, such as that of a checkout whose compiled modules are not built."""
