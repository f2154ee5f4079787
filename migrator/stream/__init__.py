"""Copies slots by the replication stream of their source, while clients stay there.

Of the source's snapshot, ``snapshotfilter`` makes ``batches`` of commands for each copy, and names the keys whose
values are too large for one command.
"""
