"""Reads RDB files: their keys, and the memory that the keys would take, without a server.

``parser`` reads a file; ``source`` gives files to Spark, with ``files`` and ``arrow``. The compiled modules are
``input`` (the bytes, their checksum, lengths and strings), ``values`` (measures a value of each type), ``scanner``
(goes from key to key and fills batches), ``layout`` and ``radix`` (memory sizes), and ``lzf`` (decompresses).
"""
