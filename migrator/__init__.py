"""Finds the keys of slots at one Redis server and moves them to another, while clients use both.

What others import:

- ``from migrator.move import migrate``: one call moves the slots of a (source, target) pair and returns once
  **complete** holds.
- ``from migrator.pace import Pace, PaceSettings``: how fast; changed, paused and resumed live. One
  ``Pace`` may serve any number of calls at once; its limits then hold for all of them together.
- ``from migrator.progress import Progress, summed``: what a call has done, and several of them added up.
- ``from migrator.errors import MigrationError, SourceUnavailable, SourceRefused, TargetUnavailable, TargetRefused,
  KeysRemain``: what a call raises. After each of them the call may be made again: it starts from the keys at the
  source, and keeps nothing between calls.
- ``from migrator.checks import check``: whether a target can take slots, before any of them is touched.
- ``from migrator.checks import look``: what a server says of itself, for a forecast.
- ``from migrator.withdrawing import withdraw``: returns once nothing sent from a source to a target can still arrive.
- ``from migrator.sweep import sweep``: returns once a server has no keys of slots that it does not own.

The modules. To move keys: ``connection`` (a pipelined connection to one server), ``scan`` (finds the keys, page by
page), ``batch`` (how many keys go in a call), ``transfer`` (moves one batch), ``bigkeys``, ``claims`` and ``pieces``
(move big keys in pieces), ``pair`` (connections), ``move`` (puts them together). For the pace: ``latency`` (measures
how slow a server is), ``feedback`` (decides which speed that allows), ``replicabuffers`` (how far a target's replicas
are behind), ``steering`` (slows the migration down). For the
checks: ``facts`` (what a server says about itself), ``followable`` (whether it lets us follow it), ``trial`` (a key of
our own goes from source to target), ``checks`` (judges by both), ``withdrawing``.
"""
