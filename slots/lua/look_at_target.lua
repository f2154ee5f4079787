-- At a target: says which keys it has.
--
-- KEYS: the keys.
-- ARGV: the run id of the process that is asked.
-- Reply: for each key whether it is there, 1 or 0. Error: NOTPERMITTED, from another process.
-- One step: the answer has to be that of the process that the permit names (run-id).
-- use: run_id, NOT_PERMITTED
if ARGV[1] ~= run_id() then return {err = NOT_PERMITTED .. ' the permit names another process'} end
local there = {}
for index, key in ipairs(KEYS) do there[index] = redis.call('EXISTS', key) end
return there
