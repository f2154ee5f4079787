-- At a target before Redis 7.0: claims an entry of a stream as a newer source did. That one lets go of an entry that was
-- deleted; this one keeps it pending.
--
-- KEYS: the stream.
-- ARGV: what stands behind it in XCLAIM: group, consumer, idle time, the id of one entry, options.
-- Reply: that of XCLAIM.
-- One step: it is part of a transaction.
-- use: by_effects
local claimed = redis.call('XCLAIM', KEYS[1], unpack(ARGV))
if #redis.call('XRANGE', KEYS[1], ARGV[4], ARGV[4]) == 0 then
  redis.call('XACK', KEYS[1], ARGV[1], ARGV[4])
end
return claimed
