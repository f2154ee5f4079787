-- Places keys at their target. What it is given and gives is said in moving.py.
local permit, check, database, keeps_target = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

redis.call('SELECT', '0')
if not holds('accepts', permit, check) then return unsettled() end
redis.call('SELECT', database)
local refused, errors = {}, {}
for place = 1, #KEYS - 1 do
  local key, payload, deadline = KEYS[place + 1], ARGV[3 + 2 * place], ARGV[4 + 2 * place]
  if keeps_target ~= '1' or redis.call('EXISTS', key) == 0 then
    local said = redis.pcall('RESTORE', key, '0', payload, 'REPLACE')
    if said.err then
      refused[#refused + 1] = place
      errors[#errors + 1] = plain(said.err)
    elseif deadline ~= '-1' then
      -- A deadline that is over takes the key away at once.
      redis.call('PEXPIREAT', key, deadline)
    end
  end
end
return {refused, errors}
