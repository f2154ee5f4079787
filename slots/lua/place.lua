-- At a target: stores the keys with the content that their source had.
--
-- KEYS: the hash "moving", and the keys.
-- ARGV: permit; check (shared/holds.lua); database; '1' if a copy that the target already has counts for more
--   (slots/beginning.py), else '0'. Then follow, for each key, its payload and its deadline in milliseconds since 1970,
--   or -1.
-- Reply: places (from 1) of the keys that were not stored, and for each of them its error. The other keys were placed.
-- One step: a place by a permit that holds no longer does nothing (one-way), however late it arrives.
-- No write_first: a full target has to refuse keys.
-- use: by_effects, database_0, holds, plain
local permit, check, database, keeps_target = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

if not holds('accepts', permit, check) then return not_permitted() end
redis.call('SELECT', database)
local refused, errors = {}, {}
for place = 1, #KEYS - 1 do
  local key, payload, deadline = KEYS[place + 1], ARGV[3 + 2 * place], ARGV[4 + 2 * place]
  if keeps_target ~= '1' or redis.call('EXISTS', key) == 0 then
    local said = redis.pcall('RESTORE', key, '0', payload, 'REPLACE')
    if said.err then
      refused[#refused + 1] = place
      errors[#errors + 1] = plain(said.err)
    elseif deadline ~= '-1' then
      -- A deadline that is over takes the key away at once.
      redis.call('PEXPIREAT', key, deadline)
    end
  end
end
return {refused, errors}
