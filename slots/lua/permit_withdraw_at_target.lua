-- Withdraws the permit by which keys come to this server.
--
-- KEYS: the hash "moving".
-- ARGV: none.
-- Reply: how many permits there were. What was heard of the source goes, too.
-- One step: what is heard by the permit has to go with it.
-- use: by_effects, database_0, forget_left
forget_left(KEYS[1])
return redis.call('HDEL', KEYS[1], 'accepts')
