-- Looks at what commands of a copy do: it runs before them and behind them, in one transaction, in its database. It counts
-- the keys that they make, and says in the position whether the server has refused any of them.
--
-- KEYS: the hash "hidden"; the name of a value of the copy that is not whole yet; the position. The first two do not
--   count, and the third is there both times.
-- ARGV: the database; 'before' or 'behind'; the position of these commands; what is behind it while it is in doubt.
-- Reply: a number that means nothing.
-- One step: nothing else makes or deletes keys in between, or is refused.
-- use: by_effects
-- Servers before Redis 6.2 do not tell it. There the position stays in doubt.
local errors = string.match(redis.call('INFO', 'stats'), 'total_error_replies:(%d+)')
if errors then
  local doubted = ARGV[3] .. ARGV[4] .. ' ' .. errors
  if ARGV[2] == 'before' then
    redis.call('SET', KEYS[3], doubted)
  elseif redis.call('GET', KEYS[3]) == doubted then
    redis.call('SET', KEYS[3], ARGV[3])
  end
end
local own = redis.call('EXISTS', KEYS[1], KEYS[2])
local size = redis.call('DBSIZE') - own
if ARGV[2] == 'before' then size = 0 - size end
redis.call('SELECT', '0')
return redis.call('HINCRBY', KEYS[1], ARGV[1], size)
