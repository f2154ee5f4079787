-- At a target from Redis 7.0 on: claims an entry of a stream as an older source did. That one keeps an entry pending that
-- was deleted; this one would let go of it.
--
-- KEYS: the stream.
-- ARGV: what stands behind it in XCLAIM: group, consumer, idle time, the id of one entry, options.
-- Reply: that of XCLAIM; 'gone' if the entry was deleted, and nothing is claimed.
-- One step: it is part of a transaction.
-- use: by_effects
if #redis.call('XRANGE', KEYS[1], ARGV[4], ARGV[4]) == 0 then return 'gone' end
return redis.call('XCLAIM', KEYS[1], unpack(ARGV))
