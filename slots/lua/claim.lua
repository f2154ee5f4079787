-- At a source: claims a key that is copied in pieces, if it is there and not claimed yet.
--
-- KEYS: the hash "moving"; the key.
-- ARGV: permit; database; the claimant.
-- Reply: 'held', 'absent' or 'taken'; the error NOTPERMITTED.
-- One step: an absent key counts as such only by a permit that holds, and none must be claimed that has gone
--   (absent-first).
-- use: by_effects, database_0, write_first, holds, claim_of
local key, permit, database, claimant = KEYS[2], ARGV[1], ARGV[2], ARGV[3]
if not holds('permit', permit, '0') then return not_permitted() end
redis.call('SELECT', database)
if redis.call('EXISTS', key) == 0 then return 'absent' end
redis.call('SELECT', '0')
write_first(KEYS[1])
if redis.call('HSETNX', KEYS[1], claim_of(database, key), claimant) == 0 then return 'taken' end
return 'held'
