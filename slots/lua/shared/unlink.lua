-- Deletes a key without freeing it on the spot. Servers older than Redis 4 have no UNLINK.
local function unlink(key)
  local gone = redis.pcall('UNLINK', key)
  if type(gone) == 'table' then redis.call('DEL', key) end
end
