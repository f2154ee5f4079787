"""Groups, servers and nodes on their way out: nothing new is put there, what they have goes elsewhere, and they go.

May import: errors, periodic, cluster, servers, masters, placement, balance.

To change

- how a group leaves: :mod:`~topom.leaving.groups`;
- how one server leaves, and who takes its place: :mod:`~topom.leaving.servers`;
- how all servers of a node leave: :mod:`~topom.leaving.nodes`;
- what has to be copied before anything goes: ``require_copy`` of :mod:`topom.servers.lastcopy`.
"""
