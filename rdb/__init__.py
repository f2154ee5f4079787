"""Reads RDB files, and snapshots that a server sends: their keys and values, without a server.

It imports nothing of ours, keeps no value, and holds a bounded part of the file. The compiled modules are ``input``
(the bytes, their checksum, lengths and strings), ``records`` (goes from key to key), ``values`` (measures a value of
each type), ``layout`` and ``radix`` (memory sizes), and ``lzf`` (decompresses).
"""
