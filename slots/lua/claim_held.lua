-- At a source: whether the claim on a key is still there.
--
-- KEYS: the hash "moving"; the key.
-- ARGV: permit; database; the claimant.
-- Reply: 1 or 0; the error NOTPERMITTED.
-- One step: the answer counts only by a permit that holds.
-- use: by_effects, database_0, holds, claim_of
if not holds('permit', ARGV[1], '0') then return not_permitted() end
return redis.call('HGET', KEYS[1], claim_of(ARGV[2], KEYS[2])) == ARGV[3] and 1 or 0
