"""Commands about all keys: SCAN, KEYS, DBSIZE, RANDOMKEY, FLUSHALL; and SORT, which may read keys by a pattern."""
