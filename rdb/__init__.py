"""Reads RDB files, and snapshots that a server sends: their keys and values, without a server.

It imports nothing of ours, keeps no value, and holds a bounded part of the file. From the ground up:

- ``numbers``: those of a fixed size;
- ``input``: the bytes, their checksum, lengths and strings; ``lzf`` decompresses, ``packed`` takes collections apart
  that are stored as one string;
- ``values`` measures a value of each type, with the memory sizes of ``layout`` and ``radix``; ``parts`` reads the
  elements of one in C, ``elements`` gives them to Python;
- ``records`` goes from key to key; ``lastvalue`` is the value of the last one; ``snapshot`` does both for Python.
"""
