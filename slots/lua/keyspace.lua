-- INFO keyspace, and how many of Slotferry's own keys are counted in it.
--
-- KEYS: Slotferry's own keys.
-- ARGV: the name of the line for them.
-- Reply: the text of INFO with that line after it.
-- One step: these keys come and go.
-- use: database_0
return redis.call('INFO', 'keyspace') .. ARGV[1] .. ':' .. redis.call('EXISTS', unpack(KEYS)) .. '\r\n'
