-- Gives a permit and the server process that has it.
--
-- KEYS: the hash "moving".
-- ARGV: the field; a random permit. Where the field is not there, this becomes the permit. Nothing can move by it. So a
--   hash that is lost or withdrawn after this look differs from the hash that was seen.
-- Reply: the server's run id, or ''; the permit.
-- One step: the run id has to be that of the process that has the permit (run-id).
-- use: by_effects, database_0, write_first, run_id
local state, field = KEYS[1], ARGV[1]
local permit = redis.call('HGET', state, field)
if not permit then
  permit = ARGV[2]
  write_first(state)
  redis.call('HSET', state, field, permit)
end
return {run_id() or '', permit}
