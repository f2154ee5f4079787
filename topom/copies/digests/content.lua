-- Digests of what is in keys. Runs on masters and replicas, and only reads.
--
-- ARGV[1] is what is wanted:
--   "look", elements, bytes: of each key {type, deadline in ms (-1: none), length, bytes of memory, digest}; the digest
--     is "" for a key with more elements or bytes than that, which goes in pieces. First of all comes the time in ms.
--     Keys after those that together have as much are left out of the answer, and are to be asked for again.
--   "piece", type, cursor, count: of one key {next cursor ("" at the end), elements seen, digest}.
--
-- Elements of sets and hashes are combined by sums of five numbers of 32 bits, in any order; all else is hashed in order.

local function framed(parts, from, to)
    local out = {}
    for i = from or 1, to or #parts do
        out[#out + 1] = #parts[i] .. ':' .. parts[i]
    end
    return table.concat(out)
end

local function summed(parts, width)
    local lanes = {0, 0, 0, 0, 0}
    for i = 1, #parts, width do
        local hash = redis.sha1hex(framed(parts, i, i + width - 1))
        for lane = 1, 5 do
            lanes[lane] = (lanes[lane] + tonumber(string.sub(hash, lane * 8 - 7, lane * 8), 16)) % 4294967296
        end
    end
    return string.format('%08x%08x%08x%08x%08x', unpack(lanes))
end

local function entries(found)
    local out = {}
    for _, entry in ipairs(found) do
        out[#out + 1] = entry[1] .. ' ' .. framed(entry[2])
    end
    return redis.sha1hex(framed(out))
end

-- A stream's last id, and of each group its name, the last id delivered and how many are not acknowledged.
local function about_stream(key)
    local out = {}
    local said = redis.call('XINFO', 'STREAM', key)
    for i = 1, #said, 2 do
        if said[i] == 'last-generated-id' then
            out[#out + 1] = said[i + 1]
        end
    end
    local groups = {}
    for _, group in ipairs(redis.call('XINFO', 'GROUPS', key)) do
        local fields = {}
        for i = 1, #group, 2 do
            fields[group[i]] = tostring(group[i + 1])
        end
        groups[#groups + 1] = framed({fields['name'], fields['last-delivered-id'], fields['pending']})
    end
    table.sort(groups)
    out[#out + 1] = framed(groups)
    return framed(out)
end

local LENGTH = {string = 'STRLEN', list = 'LLEN', set = 'SCARD', zset = 'ZCARD', hash = 'HLEN', stream = 'XLEN'}

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

local function now()
    local time = redis.call('TIME')
    return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function deadline(key)
    local at = redis.pcall('PEXPIRETIME', key)
    if type(at) == 'number' then
        return at
    end
    local left = redis.call('PTTL', key)
    return left < 0 and -1 or left + now()
end

local function text(number)
    return string.format('%.0f', number)
end

if ARGV[1] == 'look' then
    local out = {text(now())}
    local most_elements, most_bytes = tonumber(ARGV[2]), tonumber(ARGV[3])
    local elements_left, bytes_left = most_elements, most_bytes
    for i, key in ipairs(KEYS) do
        local kind = redis.call('TYPE', key)['ok']
        if kind == 'none' then
            out[i + 1] = {kind, '-1', '0', '0', ''}
        else
            local length = LENGTH[kind] and redis.call(LENGTH[kind], key) or 0
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
            out[i + 1] = {kind, text(deadline(key)), text(length), text(bytes), digest}
        end
    end
    return out
end

local key, kind, cursor, count = KEYS[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
if redis.call('TYPE', key)['ok'] ~= kind then
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
