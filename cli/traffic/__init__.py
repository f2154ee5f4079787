"""Traffic that checks what it reads: for the demo, the tests and ``benchmarks/migration.py``.

It runs in processes of its own (``python -m cli.traffic``), driven by :class:`cli.traffic.driver.Traffic`.
What every key has to hold is a pure function of the key's number and its version, so checking needs two
integers a key (:mod:`cli.traffic.content`). A key is only ever written by one process and by one request at
a time, so what was last written is known exactly; a read that runs beside a write may see either version,
and no other (:mod:`cli.traffic.requests`).
"""
