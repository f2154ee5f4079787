-- At a source: gives back the claims on keys, and deletes the keys that have moved, which come first.
--
-- KEYS: the hash "moving", and the keys.
-- ARGV: permit; check (shared/holds.lua); database; the mover; how many of the keys are deleted. Keys on which the mover
--   has no claim any more are left alone.
-- Reply: how many claims there were, and how many keys were deleted.
-- One step: a key is deleted only under the claim by which its content was taken. Between the deletion and the end of the
--   claim, a key would seem present that is absent.
-- use: by_effects, database_0, holds, claim_of, unlink
local permit, check, database, mover, deletes = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local state = KEYS[1]

if not holds('permit', permit, check) then return not_permitted() end
local fields, held, dropped = {}, {}, 0
for place = 1, #KEYS - 1 do fields[place] = claim_of(database, KEYS[place + 1]) end
local claims = redis.call('HMGET', state, unpack(fields))
for place, claim in ipairs(claims) do
  if claim == mover then held[#held + 1] = fields[place] end
end
redis.call('SELECT', database)
for place, claim in ipairs(claims) do
  if claim == mover and place <= deletes then
    unlink(KEYS[place + 1])
    dropped = dropped + 1
  end
end
redis.call('SELECT', '0')
if #held > 0 then redis.call('HDEL', state, unpack(held)) end
return {#held, dropped}
