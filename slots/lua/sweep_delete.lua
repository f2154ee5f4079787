-- Deletes keys under the token of a sweep.
--
-- KEYS: the hash "swept"; the keys.
-- ARGV: the token; the database.
-- Reply: how many keys were there; -1 without the token.
-- One step: a script may lie in the socket of a server that stands still. Without the token it deletes nothing, however
--   late it runs (owned). Keys that have gone are counted as hidden no more.
-- use: by_effects, database_0, unlink, HIDDEN
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return -1 end
redis.call('SELECT', ARGV[2])
local gone = 0
for place = 2, #KEYS do
  gone = gone + redis.call('EXISTS', KEYS[place])
  unlink(KEYS[place])
end
redis.call('SELECT', '0')
local hidden = tonumber(redis.call('HGET', HIDDEN, ARGV[2]) or 0) or 0
if hidden > 0 then redis.call('HINCRBY', HIDDEN, ARGV[2], 0 - math.min(gone, hidden)) end
return gone
