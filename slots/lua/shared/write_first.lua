-- At its maxmemory a server refuses a script's first write if that may take memory. It lets a script go on that has
-- already written. So a script that has to work at a full server begins with this write, which is always let through
-- and changes nothing: no field of a hash of ours has an empty name.
local function write_first(hash)
  redis.call('HDEL', hash, '')
end
