-- At a source: says how many keys have left it.
--
-- KEYS: the hash "moving".
-- ARGV: none.
-- Reply: that number.
-- One step: the database is selected for this command alone.
-- use: database_0
return tonumber(redis.call('HGET', KEYS[1], 'left') or 0)
