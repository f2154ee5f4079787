-- Records that the connections of all other topoms' migrators were ended in a term.
--
-- KEYS: the hash "leader".
-- ARGV: the term.
-- Reply: nothing.
-- One step: a later term may have come meanwhile; then connections of this one are to be ended.
-- use: by_effects, database_0, write_first
write_first(KEYS[1])
if redis.call('HGET', KEYS[1], 'term') == ARGV[1] then redis.call('HSET', KEYS[1], 'ended', ARGV[1]) end
