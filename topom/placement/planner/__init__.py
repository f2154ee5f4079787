"""Placement: which node leads each slot, and which nodes follow, when nodes come and go. Pure functions, deterministic.

:func:`place` gives a table at rest and the rounds that lead to it; :func:`place_document` the same for a document read
from a file. `table`: the words; `watermarks`: what a table at rest is; `layout`, `filling`, `moving`, `spreading`:
where copies are; `leading`: which nodes lead; `rounds`: in which order, and how much at a time; `solving`: one plan
from all of these; `planning`: the best of several plans; `greedy`: SOFARegistry's scheme, with which plans are
compared.
"""

from topom.placement.planner.document import place_document
from topom.placement.planner.planning import place
from topom.placement.planner.table import Copies, Copy, InvalidPlacement, Node, Placement, Promotion, Round, Rules

__all__ = [
    "Copies",
    "Copy",
    "InvalidPlacement",
    "Node",
    "Placement",
    "Promotion",
    "Round",
    "Rules",
    "place",
    "place_document",
]
