"""Traffic that checks every value it reads, for the demo, the tests and ``benchmarks/migration.py``.

It runs in processes of its own (``python -m slotferry.traffic``), driven by :class:`slotferry.traffic.driver.Traffic`.
The right value of a key is a pure function of the key's number and its version, so a check needs two integers for each
key (:mod:`slotferry.traffic.content`). A key is only written by one process and by one request at a time, so the last
written value is known exactly. A read that runs beside a write may see either version, and no other
(:mod:`slotferry.traffic.requests`).
"""
