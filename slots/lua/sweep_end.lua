-- Records that a server is swept.
--
-- KEYS: the hash "swept".
-- ARGV: the token; the life in which the sweep began; the id of the data.
-- Reply: 1; 0 without the token, or in another life.
-- One step: the recorded process has seen all of the scan, and no part of its data was replaced meanwhile (owned).
-- use: by_effects, database_0, life, field_of, HIDDEN
if field_of('token') ~= ARGV[1] or life() ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], 'token', 'left')  -- first, as in shared/write_first.lua
redis.call('DEL', HIDDEN)
redis.call('HSET', KEYS[1], 'swept', ARGV[2])
redis.call('HSET', KEYS[1], 'data', ARGV[3])
return 1
