-- The digest of a piece of a key. Runs on masters and replicas, and only reads.
--
-- KEYS: the key.
-- ARGV: its type; the cursor; how many elements the piece has, or bytes of a string.
-- Reply: the next cursor, '' at the end; how many elements or bytes were seen, -1 for a key of another type; the digest.
-- One step: the piece has to be of one moment, and of a key of this type.
-- use: digests
local key, kind, cursor, count = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
if redis.call('TYPE', key).ok ~= kind then
  return {'', '-1', ''}
end
if kind == 'hash' or kind == 'set' then
  local found = redis.call(kind == 'hash' and 'HSCAN' or 'SSCAN', key, cursor, 'COUNT', count)
  local width = kind == 'hash' and 2 or 1
  return {found[1] == '0' and '' or found[1], text(#found[2] / width), summed(found[2], width)}
elseif kind == 'stream' then
  local found = redis.call('XRANGE', key, cursor, '+', 'COUNT', count)
  if #found == 0 then
    return {'', '0', redis.sha1hex(about_stream(key))}
  end
  return {found[#found][1], text(#found), entries(found)}
end
local first = tonumber(cursor)
local last = first + count - 1
local found, seen
if kind == 'string' then
  found = redis.call('GETRANGE', key, text(first), text(last))
  seen = #found
elseif kind == 'list' then
  local parts = redis.call('LRANGE', key, text(first), text(last))
  found, seen = framed(parts), #parts
else
  local parts = redis.call('ZRANGE', key, text(first), text(last), 'WITHSCORES')
  found, seen = framed(parts), #parts / 2
end
return {seen < count and '' or text(last + 1), text(seen), redis.sha1hex(found)}
