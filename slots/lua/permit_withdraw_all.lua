-- Withdraws all permits of this server. It is for a server that becomes a master and was one before.
--
-- KEYS: the hash "moving".
-- ARGV: none.
-- Reply: how many permits there were.
-- One step: the database is selected for this command alone.
-- use: by_effects, database_0
return redis.call('HDEL', KEYS[1], 'permit', 'accepts')
