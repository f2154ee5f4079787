"""Groups, servers and nodes that leave: they get nothing new, what they have goes elsewhere, and then they are gone.

May import: reasons, errors, periodic, cluster, servers, masters, placement, balance.

To change

- how a group leaves: :mod:`~topom.leaving.groups`;
- how one server leaves, and which server takes its place: :mod:`~topom.leaving.servers`;
- how all servers of a node leave: :mod:`~topom.leaving.nodes`;
- which replica may go while its group's master is away: ``departure`` of :mod:`topom.masters.choice`;
- what a drain gets from packages that this one may not import: :mod:`topom.term.parts` passes it in.
"""
