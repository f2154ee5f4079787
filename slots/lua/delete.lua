-- At a source: deletes keys for a client whose target is full.
--
-- KEYS: the hash "moving", and the keys.
-- ARGV: permit; database; then for each key '1' if the target has it, else '0'. A key that the target has must not be
--   here as well.
-- Reply: for each key whether it was there, 1 or 0. Errors: NOTPERMITTED; CLAIMED; COPIED. They change nothing.
-- One step: by a permit that holds, and without a claim on the keys, no attempt to move them is under way, and no copy of
--   them exists.
-- use: by_effects, database_0, holds, claim_of, unlink, CLAIMED, COPIED
local permit, database = ARGV[1], ARGV[2]

if not holds('permit', permit, '1') then return not_permitted() end
for index = 2, #KEYS do
  if redis.call('HEXISTS', KEYS[1], claim_of(database, KEYS[index])) == 1 then
    return {err = CLAIMED .. ' a key is on its way'}
  end
end
redis.call('SELECT', database)
for index = 2, #KEYS do
  if ARGV[index + 1] == '1' and redis.call('EXISTS', KEYS[index]) == 1 then
    return {err = COPIED .. ' the target has a copy of a key that is here'}
  end
end
local there = {}
for index = 2, #KEYS do
  there[index - 1] = redis.call('EXISTS', KEYS[index])
  unlink(KEYS[index])
end
return there
