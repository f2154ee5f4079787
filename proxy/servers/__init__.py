"""A worker's servers: the connections, until when they may be used, and what is known of a server while connected.

May import: settings, engine.

To change

- connections that all sessions share: :mod:`~proxy.servers.backends`; connections of one session:
  :mod:`~proxy.servers.ownconnections`;
- asking servers and waiting for their answers: :mod:`~proxy.servers.everywhere`;
- requests of a session that count for their slot: :mod:`~proxy.servers.slotrequests`;
- until when a server may be used while topom is silent: :mod:`~proxy.servers.allowances`,
  :mod:`~proxy.servers.knownservers`;
- what is forgotten when a connection ends: :mod:`~proxy.servers.whileconnected`.
"""
