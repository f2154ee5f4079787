-- use: LENGTH_COMMANDS
-- A key's bytes and number of elements, found in constant time for a key of any size; nil for an absent key.
--
-- An element takes more than a byte, so the elements of a key of few bytes are not counted. The bytes are estimated from
-- five elements. If there are not many more than five, all are looked at, because one may be larger than all the others.
-- A string has no elements. A server older than Redis 4 cannot tell the bytes; there they are guessed from some of the
-- elements.
local function guess(key)
  local kind, some = redis.call('TYPE', key).ok, nil
  if kind == 'none' then return nil end
  if kind == 'string' then return redis.call('STRLEN', key) + 64, 0 end
  local length = redis.call(LENGTH_COMMANDS[kind], key)
  if kind == 'hash' then some = redis.call('HSCAN', key, '0', 'COUNT', '5')[2]
  elseif kind == 'list' then some = redis.call('LRANGE', key, '0', '4')
  elseif kind == 'set' then some = redis.call('SRANDMEMBER', key, '5')
  else some = redis.call('ZRANGE', key, '0', '4') end
  local size = 0
  for _, part in ipairs(some) do size = size + #part end
  local seen = kind == 'hash' and #some / 2 or #some
  return 64 + length * (math.ceil(size / math.max(seen, 1)) + 32), length
end
local function look_at(key, most_elements)
  local bytes = redis.pcall('MEMORY', 'USAGE', key)
  if not bytes then return nil end
  if type(bytes) == 'table' then
    if string.find(bytes.err, 'nknown Redis command', 1, true) then return guess(key) end
    bytes = redis.call('MEMORY', 'USAGE', key)  -- which raises it
  end
  if bytes <= most_elements then return bytes, 0 end
  local kind = redis.call('TYPE', key).ok
  local length = kind ~= 'string' and LENGTH_COMMANDS[kind]
  length = length and redis.call(length, key) or 0
  if length > 5 and length <= most_elements and length <= 2000 then
    bytes = redis.call('MEMORY', 'USAGE', key, 'SAMPLES', '0')
  end
  return bytes, length
end
