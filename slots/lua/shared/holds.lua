-- use: run_id, NOT_PERMITTED
-- Whether a permit holds at this server, in the field "permit" or "accepts" of the hash "moving", which is KEYS[1].
-- check: '1' to compare the run id in the permit, '0' if that was done over this connection. For a single key, INFO costs
-- more than all the rest.
local run_id_in = {permit = '^(%w+) ', accepts = '^%w+ (%w+) '}
local function holds(field, permit, check)
  if redis.call('HGET', KEYS[1], field) ~= permit then return false end
  return check ~= '1' or string.match(permit, run_id_in[field]) == run_id()
end
local function not_permitted()
  return {err = NOT_PERMITTED .. ' the permit to move keys has to be renewed'}
end
