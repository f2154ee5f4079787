"""RDB files: what keys they hold, and what memory those would take, without a server.

``parser`` reads a file; ``source`` gives files to Spark, with ``files`` and ``arrow``. Compiled are ``input`` (the
bytes, their checksum, lengths and strings), ``values`` (measures a value of each type), ``scanner`` (goes from key to
key and fills batches), ``layout`` and ``radix`` (what memory things take), and ``lzf`` (decompresses).
"""
