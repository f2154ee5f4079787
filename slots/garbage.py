"""Keeps the garbage collector away from the objects that live as long as the process.

A full collection looks at every object while nothing else runs. For the modules, classes and models of a worker or of
topom that takes 40 to 90 ms, and a slot may be locked meanwhile. These objects are never garbage, so they are left out.
"""

import gc

MOST_NEW_OBJECTS = 10_000
"""How many more objects than were freed may be made before the new ones are looked at. Work comes in bursts. With
Python's 700, the objects of hundreds of waiting requests are looked at whenever fifty of these end and begin, and
hardly any is garbage. In the worst case so many are, of some hundred bytes each."""


def spare_what_is_here() -> None:
    """Exclude all present objects from collections, and have fewer of these. For the end of a process's start."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(MOST_NEW_OBJECTS)
