-- Withdraws all permits of this server. It is for a server that becomes a master and was one before.
--
-- KEYS: the hash "moving".
-- ARGV: none.
-- Reply: how many permits there were. What was heard of a source goes, too; how many keys have left stays.
-- One step: what is heard by the permit has to go with it.
-- use: by_effects, database_0, forget_left
forget_left(KEYS[1])
return redis.call('HDEL', KEYS[1], 'permit', 'accepts')
