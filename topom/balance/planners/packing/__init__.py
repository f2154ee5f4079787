"""Bins and items: the arithmetic of plans by bytes, which knows neither groups nor slots.

A *bin* has a load, and a band in which its load should be. An *item* has a size and an origin: the bin in which it is
already, where it costs nothing. The aim is a :class:`~topom.balance.planners.packing.layout.Layout` with the least
excess (bytes outside the bands, summed over all bins), and of those the one for which the fewest bytes leave their
origin.

`layout`: which item is in which bin; `filling`: a first answer in nearly linear time; `exchange`: what single moves and
swaps of two items still mend; `trimming`: moves that were not needed; `rechoosing`: what two or three moves together
save; `search`: the exact answer for few items.
"""
