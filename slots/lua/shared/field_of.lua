-- A field of the hash KEYS[1]; '' if it is not there.
local function field_of(name)
  return redis.call('HGET', KEYS[1], name) or ''
end
