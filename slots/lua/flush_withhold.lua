-- Withholds the permits of this server for a flush. A process that renews a permit waits meanwhile.
--
-- KEYS: the hash "moving".
-- ARGV: the flush's field.
-- Reply: 1.
-- One step: everything but the fields of flushes goes, and the field comes. In between, a permit could be set.
-- use: by_effects, database_0, write_first, run_id, starts_with, FLUSH_FIELD
local state = KEYS[1]
write_first(state)
for _, field in ipairs(redis.call('HKEYS', state)) do
  if not starts_with(field, FLUSH_FIELD) then redis.call('HDEL', state, field) end
end
redis.call('HSET', state, ARGV[1], run_id() or '')
return 1
