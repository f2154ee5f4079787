"""Keys of a slot that moves: migrate-then-execute (**absent-first**, **one-way**).

May import: settings, engine.

To change

- what becomes of a request for a key that may not have moved: :mod:`~proxy.moving.migrating`;
- how keys are moved: :mod:`~proxy.moving.batches` (batches), :mod:`~proxy.moving.move` (one key, and who waits for it),
  :mod:`~proxy.moving.permits` (the right to move);
- what runs at the source meanwhile: :mod:`~proxy.moving.sourcereads` (reads of a key that goes in pieces),
  :mod:`~proxy.moving.fulltargets` (a target without room).
"""
