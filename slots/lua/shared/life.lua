-- use: run_id
-- A life of a server: the run id of its process and its replication id, which changes once the server has followed
-- another one (migrator/sweep.py).
local function life()
  return run_id() .. '.' .. (string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)') or '')
end
