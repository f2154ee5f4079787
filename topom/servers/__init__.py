"""Redis servers: what each says of itself, what it is told, and whether it has failed.

May import: reasons, errors, periodic, cluster.

A server is its run id; an address is where it was last seen (**run-id**). No server is told to follow another while it
may hold the only whole copy of its group (**last-copy**).

To change

- topom's connections to servers, and how proxies are fenced off: :mod:`~topom.servers.redis_servers`;
- what is read from a server's answer: :mod:`~topom.servers.readings`;
- how a server is told whom to follow: :mod:`~topom.servers.replication`, the one place that tells;
- who may be told to follow whom: :mod:`~topom.servers.lastcopy`, the one decision;
- when a replica is a whole copy, and the record of why not: :mod:`~topom.servers.whole`;
- when a server counts as failed: :mod:`~topom.servers.detector` (several views), :mod:`~topom.servers.health` (asking);
  its waits are settings, from :mod:`topom.term.features`;
- how servers come into a group, or leave it, by an operator: :mod:`~topom.servers.edits`;
- which addresses are one server: :mod:`~topom.servers.identities`.
"""
