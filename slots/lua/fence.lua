-- Marks proxies as fenced. The oldest marks of a whole batch go at once. A look for them at each mark took longer than
-- topom waits, at a server with many marks.
--
-- KEYS: the hash "fenced".
-- ARGV: the most marks that the hash has; who fences, one word or more, or nothing; the proxies' instances.
-- Reply: nothing.
-- One step: what is counted as too much must not change before it goes.
-- use: by_effects, database_0, write_first
write_first(KEYS[1])
local now = redis.call('TIME')[1]
if ARGV[2] ~= '' then now = now .. ' ' .. ARGV[2] end
for index = 3, #ARGV do redis.call('HSET', KEYS[1], ARGV[index], now) end
local over = redis.call('HLEN', KEYS[1]) - tonumber(ARGV[1])
if over > 0 then
  local all, marks = redis.call('HGETALL', KEYS[1]), {}
  for index = 1, #all, 2 do marks[#marks + 1] = {tonumber(string.match(all[index + 1], '^%d+')) or 0, all[index]} end
  table.sort(marks, function(one, other)
    if one[1] ~= other[1] then return one[1] < other[1] end
    return one[2] < other[2]
  end)
  for index = 1, over do redis.call('HDEL', KEYS[1], marks[index][2]) end
end
