-- For scripts that write. A server older than Redis 5 would refuse to write after INFO or TIME. It would also send the
-- script itself to its replicas, which would run it. Newer servers send only the effects in any case.
if redis.replicate_commands then redis.replicate_commands() end
