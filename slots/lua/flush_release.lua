-- Removes a flush's field.
--
-- KEYS: the hash "moving".
-- ARGV: the field.
-- Reply: 1 if the field was there, set for this very process (run-id), else 0.
-- One step: two processes must not both find the field.
-- use: by_effects, database_0, run_id
local mark = redis.call('HGET', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[1], ARGV[1])
return mark == (run_id() or '') and 1 or 0
