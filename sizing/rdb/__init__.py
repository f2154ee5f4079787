"""RDB files for Spark: every key of a file with its slot, and the memory that it would take.

``parser`` reads a file without Spark; ``source`` gives files to Spark, with ``files`` and ``arrow``. The compiled
module ``scanner`` fills batches with what :mod:`rdb` finds.
"""
