-- Renames keys that have a name of ours and a wrong type.
--
-- KEYS: names of Slotferry's own keys.
-- ARGV: for each key, its right type.
-- Reply: the keys that were renamed.
-- One step: a key that a process of ours makes meanwhile must not be renamed.
-- use: by_effects, database_0, RESERVED, ASIDE
local found = {}
for index, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  if kind ~= 'none' and kind ~= ARGV[index] then
    redis.call('RENAME', key, ASIDE .. string.sub(key, #RESERVED + 1))
    found[#found + 1] = key
  end
end
return found
