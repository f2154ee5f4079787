"""What a client of redis-py raises when its server cannot be reached, does not answer in time, or refuses."""

from redis.exceptions import RedisError

FAILURES = (RedisError, OSError, TimeoutError, RuntimeError)
"""RuntimeError is here because uvloop raises it for a write to a connection that was just reset."""
