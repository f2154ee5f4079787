-- Begins a sweep, unless the server is swept: puts its token in place of any other.
--
-- KEYS: the hash "swept".
-- ARGV: the token; the id of the group's data.
-- Reply: as of sweep_look.lua. The second part is '' if the sweep began.
-- One step: a sweep that began before can delete nothing from then on.
-- use: by_effects, database_0, life, field_of
local now, data = life(), field_of('data')
if field_of('swept') == now and data == ARGV[2] then return {now, now, data} end
redis.call('HDEL', KEYS[1], 'swept')  -- first, as in shared/write_first.lua
redis.call('HSET', KEYS[1], 'token', ARGV[1])
return {now, '', data}
