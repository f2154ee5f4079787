"""Redis servers: what each says of itself, what it is told, and whether it has failed.

May import: reasons, errors, periodic, cluster.

The run id is a server's identity; an address is only where it was last seen (**run-id**). No server is told to follow
another while it may hold the only whole copy of its group (**last-copy**).

To change

- topom's connections to servers, and how proxies are fenced off: :mod:`~topom.servers.redis_servers`;
- what is read from a server's answer: :mod:`~topom.servers.readings`;
- how a server is told which master to follow: :mod:`~topom.servers.replication`, the one place that does it;
- which server may be told to follow which: :mod:`~topom.servers.lastcopy`, the one decision;
- when a replica is a whole copy, and the record of why it is not: :mod:`~topom.servers.whole`;
- when a server counts as failed: :mod:`~topom.servers.detector` (several views), :mod:`~topom.servers.health` (asking);
  the times are settings, from :mod:`topom.term.features`;
- how operators bring servers into a group, or out of it: :mod:`~topom.servers.edits`;
- which addresses are one server: :mod:`~topom.servers.identities`.
"""
