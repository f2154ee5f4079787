"""Sizes every key of every slot, on Spark: over live servers, or from their RDB files.

Nothing here is needed by a proxy or by topom, and executors import nothing of ours but this package and ``slots``.
It is installed with ``pip install 'slotferry[sizing]'``.
"""
