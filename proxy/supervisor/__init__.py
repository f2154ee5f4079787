"""The supervisor process: it speaks with topom, and starts, tells and ends the workers.

May import: settings, channel, clusterview, commandmetrics, listening, engine, servers.

To change

- the life of the process: :mod:`~proxy.supervisor.supervisor`; how the parts are put together, and what follows from
  what topom, workers and servers say: :mod:`~proxy.supervisor.member`; identities and tables:
  :mod:`~proxy.supervisor.identity`;
- the control stream: :mod:`~proxy.supervisor.control`; answers about an epoch: :mod:`~proxy.supervisor.answers`,
  :mod:`~proxy.supervisor.acknowledging`; what topom is told of servers: :mod:`~proxy.supervisor.serverviews`; of
  the traffic: :mod:`~proxy.supervisor.loads`;
- the workers: :mod:`~proxy.supervisor.workforce`, :mod:`~proxy.supervisor.processes`; questions that concern all of
  them: :mod:`~proxy.supervisor.asking`; what dead ones leave at servers: :mod:`~proxy.supervisor.leftovers`;
- the table on disk: :mod:`proxy.supervisor.kept_table`; how a proxy stands down: :mod:`proxy.supervisor.standdown`;
- metrics: :mod:`~proxy.supervisor.metrics`, :mod:`~proxy.supervisor.trafficmetrics`,
  :mod:`~proxy.supervisor.figures`; ``/readyz``: :mod:`~proxy.supervisor.readiness`; the list of proxies for cluster
  clients: :mod:`~proxy.supervisor.announcing`.
"""
