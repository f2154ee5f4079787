"""The compiled part of a worker: a request goes from socket to socket without a Python object.

May import: nothing of the proxy.

Plain Python is called for what is rare: :mod:`proxy.commands` decides on a request, :mod:`~proxy.engine.handlers` runs
what it may have to wait for, and :mod:`~proxy.engine.decisions` carries the decision out.

To change

- how requests are read, what is known of a command, where its keys are: :mod:`slots.requests`; a request that is a
  line: :mod:`~proxy.engine.inlining`;
- how replies are measured: :mod:`~proxy.engine.resp`;
- what becomes of one request: :mod:`~proxy.engine.session`; of one that has had to wait: :mod:`~proxy.engine.front`; of
  one with keys of several servers: :mod:`~proxy.engine.splitting`; of a long one while slots move:
  :mod:`~proxy.engine.clearing`;
- what a client's user may do, and how a request is refused: :mod:`~proxy.engine.userclient`;
- which server has a slot: :mod:`~proxy.engine.router`; which keys have left a source: :mod:`~proxy.engine.absent`;
  which scripts and libraries a server has: :mod:`~proxy.engine.loaded`;
- the order of replies: :mod:`~proxy.engine.requests`; what is under way for a slot: :mod:`~proxy.engine.underway`;
- a client's connection: :mod:`~proxy.engine.connection`, and over TLS :mod:`~proxy.engine.stream`;
- a server's: :mod:`~proxy.engine.serverconnection` (up to its greeting), :mod:`~proxy.engine.requestqueue` (its queue),
  :mod:`~proxy.engine.backend` (its bytes), :mod:`~proxy.engine.allowance` (until when it may be used);
- when bytes are sent: :mod:`~proxy.engine.sending`, :mod:`~proxy.engine.poller`;
- what is counted: :mod:`~proxy.engine.statistics` (by command and user), :mod:`~proxy.engine.traffic` (by slot and
  server); which keys are asked for most: :mod:`~proxy.engine.hotkeys`.
"""
