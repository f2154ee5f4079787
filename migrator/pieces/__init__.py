"""Moves big keys in pieces: neither server stands still, and the source owns the key until the copy is whole.

What others import:

- ``from migrator.pieces.copying import copy, Copied``: builds a copy under a temporary name at the target.
- ``from migrator.pieces.finishing import finish``: makes it the key, in one atomic step, with its TTL.
- ``from migrator.pieces.cutter import PieceCutter``: how large pieces are.

Each type has a file that says how its keys are cut: ``strings``, ``hashes``, ``sets``, ``sorted_sets``, ``lists``,
``streams`` (with ``stream_groups``). They all give values of ``piece``, and ``copying`` writes them.

:mod:`migrator.stream.values` makes values from a snapshot. It shares ``stream_commands`` and ``stream_ids``,
``field_deadlines``, and ``abilities``: what not every target can do.
"""
