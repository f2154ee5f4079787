-- Takes keys at their source: claims them and gives what they are. What it is given and gives is said in moving.py.
local permit, check, database, mover = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local most_elements, most_bytes, enough_bytes = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local wanted, most_wanted, wishes = ARGV[8], tonumber(ARGV[9]), '__slotferry:wanted'

redis.call('SELECT', '0')
if not holds('permit', permit, check) then return unsettled() end
local fields, claims = {}, {}
for place = 1, #KEYS - 1 do fields[place] = 'claim:' .. database .. ':' .. KEYS[place + 1] end
if #fields > 0 then claims = redis.call('HMGET', state, unpack(fields)) end

local function deadline_of(key)
  local deadline = redis.pcall('PEXPIRETIME', key)
  if type(deadline) == 'number' then return deadline end
  local left = redis.call('PTTL', key)  -- before Redis 7
  if left < 0 then return left end
  local clock = redis.call('TIME')
  return clock[1] * 1000 + math.floor(clock[2] / 1000) + left
end

local function look(key)
  local bytes, elements = look_at(key, most_elements)
  if not bytes or bytes > most_bytes or elements > most_elements then return bytes end
  local payload = redis.call('DUMP', key)
  return bytes, payload, payload and deadline_of(key)
end

redis.call('SELECT', database)
local size, done = 0, 0
local busy, big, taken, payloads, deadlines, new_claims, wish_for = {}, {}, {}, {}, {}, {}, {}
local refused, errors = {}, {}
for place = 1, #KEYS - 1 do
  if size >= enough_bytes then break end
  local key, claim = KEYS[place + 1], claims[place]
  done = place
  if claim and string.sub(claim, 1, 7) == 'pieces ' then
    big[#big + 1] = place
    wish_for[#wish_for + 1] = key
  elseif claim then
    busy[#busy + 1] = place
  else
    local fine, bytes, payload, deadline = pcall(look, key)
    if not fine then
      -- What one key has is no harm to the others.
      refused[#refused + 1] = place
      errors[#errors + 1] = plain(type(bytes) == 'table' and bytes.err or bytes)
    elseif payload then
      taken[#taken + 1] = place
      payloads[#payloads + 1] = payload
      deadlines[#deadlines + 1] = deadline
      new_claims[#new_claims + 1] = fields[place]
      new_claims[#new_claims + 1] = mover
      size = size + math.max(bytes, #payload)  -- a guess may be far too low
    elseif bytes and payload == nil then
      big[#big + 1] = place
      wish_for[#wish_for + 1] = key
    end
  end
end

redis.call('SELECT', '0')
if #new_claims > 0 or (wanted == '1' and #wish_for > 0) then
  redis.call('HDEL', state, '')  -- a write that is let through, see moving.py
end
if #new_claims > 0 then redis.call('HMSET', state, unpack(new_claims)) end
if wanted == '1' then
  local room = most_wanted - redis.call('LLEN', wishes)
  for place, key in ipairs(wish_for) do
    if place <= room then redis.call('RPUSH', wishes, database .. ':' .. key) end
  end
end
return {done, size, busy, big, taken, payloads, deadlines, refused, errors}
