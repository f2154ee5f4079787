-- Withdraws the permit by which keys come to this server.
--
-- KEYS: the hash "moving".
-- ARGV: none.
-- Reply: how many permits there were.
-- One step: the database is selected for this command alone.
-- use: by_effects, database_0
return redis.call('HDEL', KEYS[1], 'accepts')
