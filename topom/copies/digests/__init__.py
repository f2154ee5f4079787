"""The digest check: whether a replica holds what its master holds, slot by slot, in small steps while both serve.

``content.lua`` runs at the servers and gives a digest of what is in a key; :mod:`topom.copies.digests.asking` has it
run; :mod:`topom.copies.digests.sums` adds keys up to slots and tells differences, purely;
:mod:`topom.copies.digests.walk` goes over a master and a replica; :mod:`topom.copies.digests.checks` starts, shows and
cancels checks. What is known against replicas that differ is stored (:mod:`topom.cluster.differing`): nobody reads from
them or promotes them until an operator has had them filled anew, which :mod:`topom.copies.joining` does.
"""
