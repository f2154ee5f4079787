-- At a target: makes a whole copy the key, with its deadline.
--
-- KEYS: the hash "moving"; the copy's temporary name; the key.
-- ARGV: the type; the command for its length; the least and the most length of a whole copy; the deadline in
--   milliseconds since 1970, or -1; permit; database; '1' if a key that the target already has stays, else '0'.
-- Reply: 'done'; 'expired', and neither name exists; 'lost', if the copy is gone or not whole; the error NOTPERMITTED. The
--   last two change nothing.
-- One step: this is the key's place. It does nothing by a permit that holds no longer (one-way), and nobody sees the key
--   without its deadline.
-- use: by_effects, database_0, holds, clock
local temporary, name = KEYS[2], KEYS[3]
local kind, length_command, least, most, deadline = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
if not holds('accepts', ARGV[6], '0') then return not_permitted() end
redis.call('SELECT', ARGV[7])
if ARGV[8] == '1' and redis.call('EXISTS', name) == 1 then
  redis.call('UNLINK', temporary)
  return 'done'
end
if redis.call('TYPE', temporary).ok ~= kind then return 'lost' end
local length = redis.call(length_command, temporary)
if length < least or length > most then return 'lost' end
redis.call('UNLINK', name)  -- RENAME would free it on the spot
if deadline ~= '-1' and clock() >= tonumber(deadline) then
  redis.call('UNLINK', temporary)
  return 'expired'
end
redis.call('RENAME', temporary, name)
if deadline == '-1' then redis.call('PERSIST', name) else redis.call('PEXPIREAT', name, deadline) end
return 'done'
