-- At a source: claims the keys that are there, small and not claimed, and gives their content.
--
-- KEYS: the hash "moving", and the keys.
-- ARGV: permit; check (shared/holds.lua); database; the mover, which becomes the value of the claims; most elements and
--   most bytes of a small key; bytes after which the rest is left for another call; '1' to ask for big keys in the list
--   WANTED, else '0'; the most entries of that list.
-- Reply: see Taken in slots/moving.py; places of keys are counted from 1.
-- One step: a key that is found unclaimed must not change before it is claimed and dumped. An absent key counts as such
--   only by a permit that holds (absent-first).
-- use: by_effects, database_0, write_first, holds, starts_with, claim_of, plain, look_at, deadline_of
-- use: IN_PIECES, WANTED
local permit, check, database, mover = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local most_elements, most_bytes, enough_bytes = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local wanted, most_wanted, state = ARGV[8], tonumber(ARGV[9]), KEYS[1]

if not holds('permit', permit, check) then return not_permitted() end
local fields, claims = {}, {}
for place = 1, #KEYS - 1 do fields[place] = claim_of(database, KEYS[place + 1]) end
if #fields > 0 then claims = redis.call('HMGET', state, unpack(fields)) end

local function look(key)
  local bytes, elements = look_at(key, most_elements)
  if not bytes or bytes > most_bytes or elements > most_elements then return bytes end
  local payload = redis.call('DUMP', key)
  return bytes, payload, payload and deadline_of(key)
end

redis.call('SELECT', database)
local size, done = 0, 0
local busy, big, taken, payloads, deadlines, new_claims, big_keys = {}, {}, {}, {}, {}, {}, {}
local refused, errors = {}, {}
for place = 1, #KEYS - 1 do
  if size >= enough_bytes then break end
  local key, claim = KEYS[place + 1], claims[place]
  done = place
  if claim and starts_with(claim, IN_PIECES) then
    big[#big + 1] = place
    big_keys[#big_keys + 1] = key
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
      big_keys[#big_keys + 1] = key
    end
  end
end

redis.call('SELECT', '0')
if #new_claims > 0 or (wanted == '1' and #big_keys > 0) then
  write_first(state)  -- keys have to leave a full source
end
if #new_claims > 0 then redis.call('HMSET', state, unpack(new_claims)) end
if wanted == '1' then
  local room = most_wanted - redis.call('LLEN', WANTED)
  for place, key in ipairs(big_keys) do
    if place <= room then redis.call('RPUSH', WANTED, database .. ':' .. key) end
  end
end
return {done, size, busy, big, taken, payloads, deadlines, refused, errors}
