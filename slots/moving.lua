-- Moves keys off this server. What it is given and gives, and why, is said in moving.py.
local permit, check, host, port, database, timeout = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local most_elements, most_bytes, enough_bytes = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local unsettled, wanted, truth, most_wanted = ARGV[10], ARGV[11], ARGV[12], tonumber(ARGV[13])
local first_of_login = 14
local state, wishes = '__slotferry:moving', '__slotferry:wanted'

redis.call('SELECT', '0')
local current = redis.call('HGET', state, 'permit') == permit
if current and check == '1' then
  current = string.sub(permit, 1, 40) == string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
end
if not current then
  return {err = 'UNSETTLED the permit to move keys from here to ' .. host .. ':' .. port .. ' has to be renewed'}
end
local claimed = {}
if redis.call('HLEN', state) > 2 then
  for index, key in ipairs(KEYS) do
    claimed[index] = redis.call('HEXISTS', state, 'claim:' .. database .. ':' .. key) == 1
  end
end
redis.call('SELECT', database)

local small, big, size, done = {}, {}, 0, 0
for index, key in ipairs(KEYS) do
  if size >= enough_bytes then break end
  done = index
  if claimed[index] then
    big[#big + 1] = index
  else
    local bytes, elements = look_at(key, most_elements)
    if bytes then
      if bytes > most_bytes or elements > most_elements then
        big[#big + 1] = index
      else
        small[#small + 1] = key
        size = size + bytes
      end
    end
  end
end

if #small > 0 then
  local function migrate(keys, replace)
    local command = {'MIGRATE', host, port, '', database, timeout}
    if replace then command[#command + 1] = 'REPLACE' end
    for index = first_of_login, #ARGV do command[#command + 1] = ARGV[index] end
    command[#command + 1] = 'KEYS'
    for _, key in ipairs(keys) do command[#command + 1] = key end
    return redis.pcall(unpack(command))
  end
  local function busy(reply)
    return reply.err and string.find(reply.err, 'BUSYKEY', 1, true)
  end
  local reply = migrate(small, false)
  local copied = busy(reply)
  if copied and truth == 'source' then
    reply = migrate(small, true)
  elseif copied then
    for _, key in ipairs(small) do
      reply = migrate({key}, false)
      if busy(reply) then
        unlink(key)
        reply = {ok = 'OK'}
      end
      if reply.err then break end
    end
  end
  if reply.err then
    -- Also one that cannot connect: it may do so to repeat what the target has executed without its answer getting here.
    if copied or string.find(reply.err, 'IOERR', 1, true) then
      redis.call('SELECT', '0')
      redis.call('HDEL', state, 'permit')
      redis.call('HSET', state, 'unsettled', unsettled)
    end
    -- Redis 6 puts the place in the script before its own errors.
    return {err = (string.gsub(reply.err, '^@user_script: ?%d*:? ?%-?', ''))}
  end
end

if #big > 0 and wanted == '1' then
  redis.call('SELECT', '0')
  redis.call('HDEL', state, '')  -- a write that is let through, see moving.py
  local room = most_wanted - redis.call('LLEN', wishes)
  for place, index in ipairs(big) do
    if place <= room then redis.call('RPUSH', wishes, database .. ':' .. KEYS[index]) end
  end
end

return {done, #small, size, big}
