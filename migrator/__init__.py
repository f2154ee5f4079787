"""Finds the keys of slots at one Redis server and moves them to another, while clients use both.

What others import:

- ``from migrator.move import migrate``: one call moves the slots of a (source, target) pair and returns once
  **complete** holds.
- ``from migrator.pace import Pace, PaceSettings``: how fast; changed, paused and resumed live. One
  ``Pace`` may serve any number of calls at once; its limits then hold for all of them together.
- ``from migrator.progress import Progress, summed``: what a call has done, and several of them added up.
- ``from migrator.errors import MigrationError, SourceUnavailable, SourceRefused, TargetUnavailable,
  TargetRefused, KeysRemain``: what a call raises. Every one may be retried by calling again: a call begins
  from what is at the source, and keeps nothing between calls.
- ``from migrator.checks import check``: whether a target can take slots, before any of them is touched.
- ``from migrator.settle import settle``: returns once nothing sent from a source to a target can still arrive.
- ``from migrator.sweep import sweep``: returns once a server has no keys of slots that it does not own.

The rooms: ``connection`` (a pipelined connection to one server), ``scan`` (finds the keys, page by page),
``batch`` (how many keys go in a call), ``transfer`` (moves one batch), ``bigkeys``, ``claims`` and ``pieces`` (move big
keys bit by bit), ``ends`` (connections), ``move`` (puts them together); and for the pace ``latency`` (asks a server how
slow it is), ``feedback`` (which speed that allows), ``steering`` (holds back); ``facts`` (what a server says of
itself), ``trial`` (a key of our own goes from source to target), ``checks`` (judges by both), ``settle``.
"""
