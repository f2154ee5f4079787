-- Removes the fields of flushes that are taken for dead, and gives the fields of those that are still under way.
--
-- KEYS: the hash "moving".
-- ARGV: the fields to remove.
-- Reply: the fields of flushes that are there.
-- One step: it shows what is there once the dead ones are gone.
-- use: by_effects, database_0, starts_with, FLUSH_FIELD
for _, field in ipairs(ARGV) do redis.call('HDEL', KEYS[1], field) end
local found = {}
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if starts_with(field, FLUSH_FIELD) then found[#found + 1] = field end
end
return found
