-- Runs a FLUSHDB or FLUSHALL, if the flush's field is there, set for this very process (run-id).
--
-- KEYS: keys of ours that survive the flush; the first is the hash "moving".
-- ARGV: the flush's field, '' if none is needed; the database to flush in; the command and its arguments.
-- Reply: that of the command, or its error.
-- One step: no other process finds one of our keys missing, and none sees an effect of the flush before it can see the
--   flush itself.
-- use: by_effects, database_0, run_id, plain, HIDDEN
if ARGV[1] ~= '' then
  local mark = redis.call('HGET', KEYS[1], ARGV[1])
  if not mark or mark ~= run_id() then
    return {err = 'TRYAGAIN keys move again, or the server was started anew; it was not flushed, others may be'}
  end
end
local kept = {}
for index, name in ipairs(KEYS) do kept[index] = redis.call('DUMP', name) end
redis.call('SELECT', ARGV[2])
local said = redis.pcall(unpack(ARGV, 3))
if said.err then return {err = plain(said.err)} end
redis.call('SELECT', '0')
for index, name in ipairs(KEYS) do
  local mark = kept[index]
  if mark and redis.call('EXISTS', name) == 0 then redis.call('RESTORE', name, '0', mark) end
end
if string.upper(ARGV[3]) == 'FLUSHALL' then redis.call('DEL', HIDDEN) else redis.call('HDEL', HIDDEN, ARGV[2]) end
return said
