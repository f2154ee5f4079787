"""The digest check: whether a replica holds what its master holds, slot by slot, in small steps while both serve.

Scripts of ``slots/lua`` give a digest of what is in a key; :mod:`topom.copies.digests.asking` runs them at the servers;
:mod:`topom.copies.digests.sums` adds keys up to slots and names differences (pure); :mod:`topom.copies.digests.walk`
goes over a master and a replica; :mod:`topom.copies.digests.checks` starts, shows and cancels checks. It is stored
which replicas differ (:mod:`topom.cluster.differing`). Nobody reads from them or promotes them until they are filled
anew. An operator orders that, and :mod:`topom.copies.joining` does it.
"""
