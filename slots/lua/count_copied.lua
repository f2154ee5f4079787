-- Counts the keys that commands of a copy make: it runs before them and behind them, in one transaction, in its database.
--
-- KEYS: the hash "hidden"; the name of a value of the copy that is not whole yet. These do not count.
-- ARGV: the database; 'before' or 'behind'.
-- Reply: a number that means nothing.
-- One step: nothing else makes or deletes keys in between.
-- use: by_effects
local own = redis.call('EXISTS', KEYS[1], KEYS[2])
local size = redis.call('DBSIZE') - own
if ARGV[2] == 'before' then size = 0 - size end
redis.call('SELECT', '0')
return redis.call('HINCRBY', KEYS[1], ARGV[1], size)
