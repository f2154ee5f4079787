"""The data plane: clients in, Redis servers out. May import ``slots``.

A proxy is one *supervisor* process and several *workers*. A worker has all that a request needs. The supervisor talks
to topom, and tells its workers the slot table.

To change

- how bytes go from client to server and back: :mod:`proxy.engine`, which is compiled;
- what the proxy does with a command: its row in ``slots/commands.tsv``; commands in plain Python:
  :mod:`proxy.slowpath`, a module a family;
- what a worker does with a new slot table: :mod:`~proxy.routing`, :mod:`~proxy.holding` (locked slots),
  :mod:`~proxy.settling` (connections that were lost);
- keys of a slot that moves: :mod:`~proxy.migrating` (the decision), :mod:`~proxy.lane` (the moves),
  :mod:`~proxy.sourcereads`, :mod:`~proxy.fulltargets`;
- connections to servers: :mod:`~proxy.backends` (shared), :mod:`~proxy.ownconnections` (of one session),
  :mod:`~proxy.subscribers` (pub/sub);
- scripts: :mod:`~proxy.scripts`, :mod:`~proxy.luakeys`; commands of modules: :mod:`~proxy.learning`;
- reads from replicas: :mod:`~proxy.replicas`, :mod:`~proxy.replicagroup`;
- how clients get in, and what they may do: :mod:`~proxy.listening`, :mod:`~proxy.arrivals`, :mod:`~proxy.users`,
  :mod:`~proxy.proxyprotocol`; how they leave: :mod:`~proxy.draining`;
- the processes: :mod:`~proxy.supervisor`, :mod:`~proxy.workforce`, :mod:`~proxy.processes`, :mod:`~proxy.worker`,
  :mod:`~proxy.channel` (between them);
- what is said to topom: :mod:`~proxy.control`; which epochs are acknowledged: :mod:`~proxy.acknowledging`;
- when a proxy that hears no topom serves: :mod:`~proxy.tablefile`, :mod:`~proxy.tablekeeping`, :mod:`~proxy.alone`
  (the table on disk), :mod:`~proxy.standdown`, :mod:`~proxy.unfenced`, :mod:`~proxy.allowances` (how it stands down);
- what is measured: :mod:`~proxy.metrics`, :mod:`~proxy.commandmetrics`, :mod:`~proxy.slowlog`;
- a setting: :mod:`~proxy.settings`, and the same line in ``configs/proxy.toml``.

``docs/architecture.md`` follows one request through all of it.
"""
