-- use: CLAIM_FIELD
-- The field of the hash "moving" that has the claim on a key.
local function claim_of(database, key)
  return CLAIM_FIELD .. database .. ':' .. key
end
