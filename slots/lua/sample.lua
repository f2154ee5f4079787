-- Gives some fields or elements of keys that have a name of ours.
--
-- KEYS: names of Slotferry's own keys.
-- ARGV: none.
-- Reply: for each key its type and a list of about ten fields or elements, or the beginning of a string.
-- One step: the type of a key has to be that of the sample, or reading it is an error.
-- use: by_effects, database_0
local found = {}
for index, key in ipairs(KEYS) do
  local kind, some = redis.call('TYPE', key).ok, {}
  if kind == 'hash' then
    local page = redis.call('HSCAN', key, '0', 'COUNT', '10')[2]
    for place = 1, #page, 2 do some[#some + 1] = page[place] end
  elseif kind == 'list' then some = redis.call('LRANGE', key, '0', '9')
  elseif kind == 'string' then some = {redis.call('GETRANGE', key, '0', '99')} end
  found[index] = {kind, some}
end
return found
