-- At a source: makes a key, gives its payload, and deletes it.
--
-- KEYS: the trial key.
-- ARGV: seconds after which it expires.
-- Reply: what DUMP gives, or an error.
-- One step: no client of the source sees the key.
-- use: by_effects
-- The first write is one that a full server lets through, as in shared/write_first.lua. Slots are often moved away from a
-- full source.
local answer = redis.pcall('DEL', KEYS[1])
if type(answer) == 'table' and answer.err then return answer end
answer = redis.pcall('SET', KEYS[1], '', 'EX', ARGV[1])
if type(answer) == 'table' and answer.err then return answer end
answer = redis.pcall('DUMP', KEYS[1])
redis.pcall('DEL', KEYS[1])
return answer
