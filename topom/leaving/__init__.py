"""Groups, servers and nodes on their way out: nothing new is put there, what they have goes elsewhere, and they go.

May import: reasons, errors, periodic, cluster, servers, masters, placement, balance.

To change

- how a group leaves: :mod:`~topom.leaving.groups`;
- how one server leaves, and who takes its place: :mod:`~topom.leaving.servers`;
- how all servers of a node leave: :mod:`~topom.leaving.nodes`;
- which replica may go while its group's master is not there: ``departure`` of :mod:`topom.masters.choice`;
- what a drain is told of rooms that this one may not import: :mod:`topom.term.service` hands it in.
"""
