"""Makes a value by commands of bounded size, from the elements that a snapshot has of it (:mod:`rdb.elements`).

It is the way for values that are too large for one step of a server, and for late ones where the target cannot read the
source's format. Small ones of a snapshot are written there straight from its bytes
(:mod:`migrator.stream.valuecommands`). What others import:

- ``from migrator.stream.values.making import pieces_of``: the pieces of one value.
- ``from migrator.stream.values.atonce import small_stream, replacing``: values under their own names, for targets that
  do not read the source's payloads.
- ``from migrator.stream.values.finishing import finish_commands``: the last step, which gives the value its name.
- ``from migrator.stream.values.keeping import Kept``: elements that can be read once, kept so that they can be read
  again.
- ``from migrator.stream.values.cutting import Limits, LongCommand`` and ``from migrator.stream.values.hashes import
  FieldDeadlines``: what goes in and comes out.

Each type has a module that says how its values are cut: ``strings``, ``flat`` (lists, sets and sorted sets),
``hashes``, ``streams`` (with ``pending``). What commands of streams are is known in :mod:`migrator.pieces`.

Some things no command sets, so they start again: how long a key was not used or how often, and when a consumer of a
stream was last seen or active. Before Redis 6.2, consumers that have nothing pending are left out.
"""
