-- Digests of what is in keys. Runs on masters and replicas, and only reads.
--
-- KEYS: the keys.
-- ARGV: the most elements and the most bytes of content.
-- Reply: the time in milliseconds; then for each key its type, its deadline in milliseconds since 1970 (-1: none), its
--   length, its bytes of memory, and its digest. The digest is '' for a key with more elements or bytes than that, which
--   goes in pieces (digest_piece.lua). Keys after those that together have as much are left out of the reply, and are to
--   be asked for again.
-- One step: the parts of what is said of a key have to be of one moment, and the time as well.
-- use: LENGTH_COMMANDS, digests, clock, deadline_of
local function whole(key, kind)
  if kind == 'string' then
    return redis.sha1hex(redis.call('GET', key))
  elseif kind == 'list' then
    return redis.sha1hex(framed(redis.call('LRANGE', key, 0, -1)))
  elseif kind == 'set' then
    return summed(redis.call('SMEMBERS', key), 1)
  elseif kind == 'zset' then
    return redis.sha1hex(framed(redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')))
  elseif kind == 'hash' then
    return summed(redis.call('HGETALL', key), 2)
  elseif kind == 'stream' then
    return redis.sha1hex(entries(redis.call('XRANGE', key, '-', '+')) .. about_stream(key))
  end
  -- A module's type. The last ten bytes are the version of the format and a checksum.
  local dumped = redis.pcall('DUMP', key)
  if type(dumped) ~= 'string' then
    return ''
  end
  return redis.sha1hex(string.sub(dumped, 1, -11))
end

local out = {text(clock())}
local most_elements, most_bytes = tonumber(ARGV[1]), tonumber(ARGV[2])
local elements_left, bytes_left = most_elements, most_bytes
for i, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  if kind == 'none' then
    out[i + 1] = {kind, '-1', '0', '0', ''}
  else
    local length = LENGTH_COMMANDS[kind] and redis.call(LENGTH_COMMANDS[kind], key) or 0
    local memory = redis.pcall('MEMORY', 'USAGE', key)
    if type(memory) ~= 'number' then
      memory = 0
    end
    local elements = kind == 'string' and 0 or length
    local bytes = kind == 'string' and math.max(length, memory) or memory
    local digest = ''
    if elements <= most_elements and bytes <= most_bytes then
      if i > 1 and (elements > elements_left or bytes > bytes_left) then
        break
      end
      elements_left, bytes_left = elements_left - elements, bytes_left - bytes
      digest = whole(key, kind)
    end
    out[i + 1] = {kind, text(deadline_of(key)), text(length), text(bytes), digest}
  end
end
return out
