-- How many keys a database has without Slotferry's own. It runs in the connection's database.
--
-- KEYS: Slotferry's own keys.
-- ARGV: none.
-- Reply: the number.
-- One step: these keys come and go.
return redis.call('DBSIZE') - redis.call('EXISTS', unpack(KEYS))
