-- At a target: forgets what was heard of sources (hear_left.lua).
-- use: starts_with, HEARD_FIELD, UNDONE_FIELD
local function forget_left(state)
  for _, name in ipairs(redis.call('HKEYS', state)) do
    if starts_with(name, HEARD_FIELD) or starts_with(name, UNDONE_FIELD) then redis.call('HDEL', state, name) end
  end
end
