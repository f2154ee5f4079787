-- Looks at keys column by column: at those that SCAN finds, or at those that are named.
--
-- KEYS: none. The keys are arguments, so that both ways are called alike.
-- ARGV: the wanted columns, with blanks between them; the samples of MEMORY USAGE, '' for its default; the number of
--   types to keep, 0 for all, and these types; 'SCAN' and its arguments, or 'KEYS' and the keys.
-- Reply: SCAN's cursor, '0' for named keys; the keys; then for each column, in the order in which they were asked for, a
--   value for each key (null: there is none). A type and an encoding is its place in the list of known names; a list of
--   further names, numbered on from there, follows the column.
-- One step: it saves a round trip. What is said of a key is of one moment.
-- Nothing here counts as use of a key, except ``elements`` on servers before Redis 7.2.
-- use: LENGTH_COMMANDS, TYPES, ENCODINGS
local call = redis.call
local samples, last_type = ARGV[2], 3 + ARGV[3]
local kept_types, cursor, keys = {}, '0', {}
for place = 4, last_type do kept_types[ARGV[place]] = true end
if ARGV[last_type + 1] == 'SCAN' then
  local scanned = call('SCAN', unpack(ARGV, last_type + 2))
  cursor, keys = scanned[1], scanned[2]
else
  for place = last_type + 2, #ARGV do keys[#keys + 1] = ARGV[place] end
end

-- Gives a function that says the place of a name, and the list of names that it adds.
local function places(names)
  local place_of, more = {}, {}
  for place, name in ipairs(names) do place_of[name] = place - 1 end
  return function(name)
    if not place_of[name] then
      more[#more + 1] = name
      place_of[name] = #names + #more - 1
    end
    return place_of[name]
  end, more
end

local values, reply = {}, {cursor, keys}
local type_place, encoding_place, more
for column in string.gmatch(ARGV[1], '%S+') do
  values[column] = {}
  reply[#reply + 1] = values[column]
  if column == 'type' then type_place, more = places(TYPES)
  elseif column == 'encoding' then encoding_place, more = places(ENCODINGS)
  else more = nil end
  reply[#reply + 1] = more
end
local types, bytes, ttls, encodings = values.type, values.bytes, values.ttl_ms, values.encoding
local idle_times, lengths = values.idle_s, values.elements
local usual = bytes and samples == ''

local n, kept, sifted = 0, {}, last_type > 3
for place = 1, #keys do
  local key = keys[place]
  local kind = (sifted or types or lengths) and call('TYPE', key).ok
  if not sifted or kept_types[kind] then
    n = n + 1
    kept[n] = key
    if types then types[n] = type_place(kind) end
    -- Two more arguments take a third more time, so the usual number of samples is left to the server.
    if usual then bytes[n] = call('MEMORY', 'USAGE', key)
    elseif bytes then bytes[n] = call('MEMORY', 'USAGE', key, 'SAMPLES', samples) end
    if ttls then ttls[n] = call('PTTL', key) end
    if encodings then
      local name = call('OBJECT', 'ENCODING', key)
      encodings[n] = name and encoding_place(name)
    end
    if idle_times then
      -- An LFU policy keeps no idle time; OBJECT IDLETIME then gives an error.
      local idle = redis.pcall('OBJECT', 'IDLETIME', key)
      idle_times[n] = type(idle) == 'number' and idle
    end
    if lengths then
      local length = LENGTH_COMMANDS[kind]
      lengths[n] = length and call(length, key) or false
    end
  end
end
reply[2] = kept
return reply
