"""The garbage collector, kept away from what a process consists of.

A full collection looks at every object there is, while nothing else happens: 40 to 90 ms for the modules, classes and
models of a worker or of topom, and a slot may be locked meanwhile. They are never garbage, so it need not look.
"""

import gc


def spare_what_is_here() -> None:
    """Have collections leave alone all objects that there are by now. For the end of a process's start."""
    gc.collect()
    gc.freeze()
