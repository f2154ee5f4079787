-- How many keys a database has without Slotferry's own, and without those of copies that its server does not own
-- (hidden). It runs in the connection's database.
--
-- KEYS: Slotferry's own keys.
-- ARGV: the database.
-- Reply: the number.
-- One step: these keys come and go.
-- use: HIDDEN, POSITION, PIECE
local own = redis.call('EXISTS', unpack(KEYS))
-- A value of a copy that is not whole yet is Slotferry's own, too. Another program's keys may have these names.
local position = redis.pcall('GET', POSITION)
if type(position) == 'string' then own = own + redis.call('EXISTS', PIECE .. string.match(position, '^%S*')) end
local size = redis.call('DBSIZE') - own
redis.call('SELECT', '0')
-- Another program's key may have the name, until it is renamed.
local hidden = redis.pcall('HGET', HIDDEN, ARGV[1])
return math.max(0, size - (type(hidden) == 'string' and tonumber(hidden) or 0))
