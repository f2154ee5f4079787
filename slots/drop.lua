-- Gives claims back at a source, and deletes the keys that have moved. What it is given and gives is said in moving.py.
local permit, check, database, mover, deletes = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

redis.call('SELECT', '0')
if not holds('permit', permit, check) then return unsettled() end
local fields, held, dropped = {}, {}, 0
for place = 1, #KEYS - 1 do fields[place] = 'claim:' .. database .. ':' .. KEYS[place + 1] end
local claims = redis.call('HMGET', state, unpack(fields))
for place, claim in ipairs(claims) do
  if claim == mover then held[#held + 1] = fields[place] end
end
redis.call('SELECT', database)
for place, claim in ipairs(claims) do
  if claim == mover and place <= deletes then
    unlink(KEYS[place + 1])
    dropped = dropped + 1
  end
end
redis.call('SELECT', '0')
if #held > 0 then redis.call('HDEL', state, unpack(held)) end
return {#held, dropped}
