-- At a target: hears how many keys have left the source, and says whether the source has older data.
--
-- KEYS: the hash "moving".
-- ARGV: permit; the source's address; how many keys have left it.
-- Reply: how many keys the source does not know to have left, at least; the error NOTPERMITTED.
-- One step: a permit that does not hold may name an earlier process of the source.
-- use: by_effects, database_0, holds, write_first, hear_left
local permit, source, left = ARGV[1], ARGV[2], ARGV[3]
if not holds('accepts', permit, '0') then return not_permitted() end
write_first(KEYS[1])
hear_left(KEYS[1], permit, source, left, true)
return tonumber(redis.call('HGET', KEYS[1], UNDONE_FIELD .. source) or 0)
