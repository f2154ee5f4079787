"""What a client of redis-py raises when its server cannot be reached, does not answer in time, or refuses."""

from redis.exceptions import RedisError

FAILURES = (RedisError, OSError, TimeoutError, RuntimeError)
"""RuntimeError is uvloop's word for writing to a connection that was reset a moment ago."""
