-- Puts a permit in place of another one, if the server is still the process that was seen, and no flush is under way.
--
-- KEYS: the hash "moving".
-- ARGV: the field; the permit before and after; the run id that was seen; '1' if claims on keys in pieces go as well.
--   At a source the other claims go in any case. Copying in pieces takes long, and the process that copies checks its
--   claim before it ends.
-- Reply: 'done'; 'changed', if the permit or the process is another one; 'flush', if one is under way.
-- One step: of several processes that renew at once, the same one has to be last at both ends (one-way). The permit must
--   not be set while a flush withholds it.
-- use: by_effects, database_0, write_first, run_id, starts_with, CLAIM_FIELD, FLUSH_FIELD, IN_PIECES
local state, field, before, after = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
if ARGV[4] ~= run_id() then return 'changed' end
if redis.call('HGET', state, field) ~= before then return 'changed' end
local claims = {}
for _, name in ipairs(redis.call('HKEYS', state)) do
  if starts_with(name, FLUSH_FIELD) then return 'flush' end
  if starts_with(name, CLAIM_FIELD) then claims[#claims + 1] = name end
end
write_first(state)
redis.call('HSET', state, field, after)
for _, name in ipairs(field == 'permit' and claims or {}) do
  if ARGV[5] == '1' or not starts_with(redis.call('HGET', state, name), IN_PIECES) then
    redis.call('HDEL', state, name)
  end
end
return 'done'
