-- Has a server turn away migrators of earlier terms.
--
-- KEYS: the hash "leader".
-- ARGV: the term.
-- Reply: the newest term before; the field "ended".
-- One step: the term only grows, also if two topoms come at once.
-- use: by_effects, database_0, write_first
write_first(KEYS[1])
local newest = tonumber(redis.call('HGET', KEYS[1], 'term') or '0')
if newest < tonumber(ARGV[1]) then redis.call('HSET', KEYS[1], 'term', ARGV[1]) end
return {newest, tonumber(redis.call('HGET', KEYS[1], 'ended') or '0')}
