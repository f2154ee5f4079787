"""Traffic that checks what it reads: for the demo, the tests and ``benchmarks/migration.py``.

It runs in processes of its own (``python -m slotferry.traffic``), driven by :class:`slotferry.traffic.driver.Traffic`.
What every key has to hold is a pure function of the key's number and its version, so checking needs two
integers a key (:mod:`slotferry.traffic.content`). A key is only ever written by one process and by one request at
a time, so what was last written is known exactly; a read that runs beside a write may see either version,
and no other (:mod:`slotferry.traffic.requests`).
"""
