"""The data plane: clients in, Redis servers out. May import ``slots``.

A proxy is one *supervisor* process and several *workers*. A worker has all that a request needs. The supervisor talks
to topom, and tells its workers the slot table.

Its rooms, from the ground up:

- ``users``, ``settings``, ``channel`` (between supervisor and workers), ``clusterview``,
  ``commandmetrics``, ``listening``: what both processes share; a setting stands in ``configs/proxy.toml`` too;
- :mod:`proxy.engine`, which is compiled: how bytes go from client to server and back;
- :mod:`proxy.servers`: connections to servers, and until when they may be used;
- :mod:`proxy.moving`: keys of a slot that moves;
- :mod:`proxy.commands`: commands in plain Python, a folder a family; what is true of a command is its row in
  ``slots/commands.tsv``;
- :mod:`proxy.worker` and :mod:`proxy.supervisor`: the two processes.

Each room says where to go for a change.

``docs/architecture-request.md`` follows one request through all of it.
"""
