-- Counts keys of a database that a source keeps when their slots leave it, unless it has been swept.
--
-- KEYS: the hash "hidden"; the hash "swept".
-- ARGV: the database; how many keys.
-- Reply: 1; 0 if it has been swept.
-- One step: a script may lie in the socket of a server that stands still. If a sweep has ended before it runs, nothing
--   would take the number away. With the number comes "left", which says that a sweep is due.
-- use: by_effects, database_0
if redis.call('HEXISTS', KEYS[2], 'swept') == 1 then return 0 end
redis.call('HSET', KEYS[2], 'left', '1')
redis.call('HINCRBY', KEYS[1], ARGV[1], ARGV[2])
return 1
