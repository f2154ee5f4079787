-- run-id: the server process that runs the script; nil if INFO does not name one.
local function run_id()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
end
