"""What a worker does with a command in plain Python, a folder a family: all that is rare or takes several steps.

The engine asks :mod:`~proxy.commands.dispatch` about every request that it does not decide by itself.

May import: settings, users, channel, clusterview, commandmetrics, engine, servers.

To change

- which family answers a command: :mod:`~proxy.commands.dispatch`; which families there are:
  :mod:`~proxy.commands.families`; what a family can be asked: :mod:`~proxy.commands.family`;
- what families use of their worker: :mod:`~proxy.commands.services`; what they keep of a session:
  :mod:`~proxy.commands.state`; the form of replies and arguments: :mod:`~proxy.commands.replies`,
  :mod:`~proxy.commands.arguments`;
- a command: the folder of its family. Only ``families`` and ``dispatch`` know all of them.
"""
