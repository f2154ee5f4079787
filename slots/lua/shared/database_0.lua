-- Slotferry's own keys are in database 0, whatever the connection has selected. This lasts as long as the script.
redis.call('SELECT', '0')
