-- How parts of a key become a digest. Elements of sets and hashes are combined by sums of five numbers of 32 bits, in
-- any order; all else is hashed in order.
local function framed(parts, from, to)
  local out = {}
  for i = from or 1, to or #parts do
    out[#out + 1] = #parts[i] .. ':' .. parts[i]
  end
  return table.concat(out)
end

local function summed(parts, width)
  local sums = {0, 0, 0, 0, 0}
  for i = 1, #parts, width do
    local hash = redis.sha1hex(framed(parts, i, i + width - 1))
    for place = 1, 5 do
      sums[place] = (sums[place] + tonumber(string.sub(hash, place * 8 - 7, place * 8), 16)) % 4294967296
    end
  end
  return string.format('%08x%08x%08x%08x%08x', unpack(sums))
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

local function text(number)
  return string.format('%.0f', number)
end
