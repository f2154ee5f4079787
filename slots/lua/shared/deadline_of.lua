-- use: clock
-- When a key that is there expires, in milliseconds since 1970; -1 for never.
local function deadline_of(key)
  local deadline = redis.pcall('PEXPIRETIME', key)
  if type(deadline) == 'number' then return deadline end
  local left = redis.call('PTTL', key)  -- before Redis 7
  return left < 0 and -1 or clock() + left
end
