"""The live picture of the cluster: all of it at first, then what changes, as server-sent events.

To change

- the endpoint: :mod:`~topom.api.live.endpoint`; who gets what, and the limits: :mod:`~topom.api.live.viewers`;
- what the picture shows: :mod:`~topom.api.live.taking`; how changes are found: :mod:`~topom.api.live.picture`;
- which servers are asked when, and what is shown of groups: :mod:`~topom.api.live.servers`;
- what counts as wrong, and what to do about it: :mod:`~topom.api.live.problems`.
"""
