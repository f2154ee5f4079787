"""Keeps the garbage collector away from the objects that live as long as the process.

A full collection looks at every object while nothing else runs. For the modules, classes and models of a worker or of
topom that takes 40 to 90 ms, and a slot may be locked meanwhile. These objects are never garbage, so they are left out.
"""

import gc


def spare_what_is_here() -> None:
    """Exclude all present objects from collections. Call it at the end of a process's start."""
    gc.collect()
    gc.freeze()
