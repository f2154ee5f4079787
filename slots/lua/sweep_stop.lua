-- Takes its token away from any sweep.
--
-- KEYS: the hash "swept".
-- ARGV: none.
-- Reply: how many tokens there were.
-- One step: the database is selected for this command alone.
-- use: by_effects, database_0
return redis.call('HDEL', KEYS[1], 'token')
