-- Withdraws the permit by which keys leave this server, the claims on keys, and the list of keys that clients wait for.
--
-- KEYS: the hash "moving"; the list of wanted keys.
-- ARGV: none.
-- Reply: how many lists there were.
-- One step: no claim must be made by the permit after the claims are gone.
-- use: by_effects, database_0, starts_with, CLAIM_FIELD
redis.call('HDEL', KEYS[1], 'permit')
for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
  if starts_with(name, CLAIM_FIELD) then redis.call('HDEL', KEYS[1], name) end
end
return redis.call('DEL', KEYS[2])
