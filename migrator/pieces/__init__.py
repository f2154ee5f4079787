"""Big keys, moved in pieces: neither server stands still, and the source owns the key until the copy is whole.

What others import:

- ``from migrator.pieces.copying import copy, Copied``: builds a copy under a temporary name at the target.
- ``from migrator.pieces.finishing import finish``: makes it the key, in one atomic step, with its TTL.
- ``from migrator.pieces.cutter import PieceCutter, PieceSettings``: how large pieces are.

A file a type says how it is cut: ``strings``, ``hashes``, ``sets``, ``sorted_sets``, ``lists``, ``streams`` (with
``stream_groups`` and ``stream_ids``). ``piece`` is what they give, ``copying`` writes it.
"""
