-- Has a server turn away migrators of earlier terms.
--
-- KEYS: the hash "leader".
-- ARGV: the term, 0 for none; the format of Slotferry's keys that the caller knows.
-- Reply: the newest term before; the field "ended". If the server says another format, that alone, and nothing changes.
-- One step: the term only grows, also if two topoms come at once.
-- use: by_effects, database_0, write_first
local format = redis.call('HGET', KEYS[1], 'format') or '1'  -- the first one is not written
if format ~= ARGV[2] then return {format} end
local newest = tonumber(redis.call('HGET', KEYS[1], 'term') or '0')
if newest < tonumber(ARGV[1]) then
  write_first(KEYS[1])
  redis.call('HSET', KEYS[1], 'term', ARGV[1])
end
return {newest, tonumber(redis.call('HGET', KEYS[1], 'ended') or '0')}
