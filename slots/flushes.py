"""A flush while slots move: the scripts by which whoever flushes keeps all movers away until it is over everywhere.

For each key there is one moment at which a flush takes it away, whatever moves. A key that its source has goes with
the source's flush, any other with the target's. That stays true as long as nobody learns in between that a key has left
its source: who did would write it at the target, and the target's flush would take that away. So:

1. At every server the flush *withholds* the permit (:mod:`slots.permits`): in one step go the permit by which keys
   leave it, the one by which they come, and the claims, and a field ``flush:token`` stands in
   :data:`slots.moving.STATE`, its value the server's run id. What is on its way does nothing any more.
2. Every server is flushed, in any order; each looks in the same step whether the field stands there, of this very
   process (**run-id**).
3. The fields are taken back. One that is not there any more is an error for the client: do it again.

A permit is set at a server only if no field stands there, in the same step, at the target first. Every field stands
before the first server is flushed. So a permit that holds was set at both ends before the flush came to either, and
goes with the first field; or after it was over at both. A slot's move is complete only once no field stands at either
end, looked at after the source was scanned.

A flusher that dies leaves its fields. Who waits for one takes it away at both ends once it has stood for
:data:`TAKEN_OVER_SECONDS` by his own clock; where the flush comes after that, it is refused.

Several flushes may stand side by side: each takes away what there is at its own moments.
"""

from slots.connections import BY_EFFECTS

FIELD = "flush:"
"""What the names of the fields begin with."""
TAKEN_OVER_SECONDS = 10.0
"""After which a flush that stands at a server is taken for dead by whoever waits for it."""

_BEGIN = (
    BY_EFFECTS
    + """
redis.call('SELECT', '0')
local state = KEYS[1]
redis.call('HDEL', state, '')  -- a write that is let through at maxmemory, see moving.py
local function run_id() return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or '' end
"""
)

KEEP_FLUSHES = """
for _, field in ipairs(redis.call('HKEYS', state)) do
  if string.sub(field, 1, 6) ~= 'flush:' then redis.call('HDEL', state, field) end
end
"""
"""For scripts: takes away everything of ``state`` but the fields of flushes."""

WITHHOLD = (
    _BEGIN
    + KEEP_FLUSHES
    + """
redis.call('HSET', state, ARGV[1], run_id())
return 1
"""
)
"""Withholds the permit at KEYS[1], for the flush whose field is ARGV[1]. Who renews it meanwhile waits."""

FLUSH = (
    BY_EFFECTS
    + """
redis.call('SELECT', '0')
if ARGV[1] ~= '' then
  local mark = redis.call('HGET', KEYS[1], ARGV[1])
  if not mark or mark ~= string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') then
    return {err = 'TRYAGAIN keys move again, or the server was started anew; it was not flushed, others may be'}
  end
end
local kept = {}
for index, name in ipairs(KEYS) do kept[index] = redis.call('DUMP', name) end
redis.call('SELECT', ARGV[2])
local said = redis.pcall(unpack(ARGV, 3))
if said.err then return {err = (string.gsub(said.err, '^@user_script: ?%d*:? ?%-?', ''))} end
redis.call('SELECT', '0')
for index, name in ipairs(KEYS) do
  local mark = kept[index]
  if mark and redis.call('EXISTS', name) == 0 then redis.call('RESTORE', name, '0', mark) end
end
return said
"""
)
"""Runs the FLUSHDB or FLUSHALL that ARGV[3] and what follows are, in database ARGV[2], if the field ARGV[1] stands.

No field is asked for where that is empty. KEYS, of which the first has the field, stay. In one step: nobody finds one
of them missing, nor learns from what is flushed before he learns of the flush.
"""

RELEASE = (
    _BEGIN
    + """
local mark = redis.call('HGET', state, ARGV[1])
redis.call('HDEL', state, ARGV[1])
return mark == run_id() and 1 or 0
"""
)
"""Takes back the field ARGV[1] of KEYS[1]; says if it stood, of this very process."""

STANDING = (
    _BEGIN
    + """
for _, field in ipairs(ARGV) do redis.call('HDEL', state, field) end
local found = {}
for _, field in ipairs(redis.call('HKEYS', state)) do
  if string.sub(field, 1, 6) == 'flush:' then found[#found + 1] = field end
end
return found
"""
)
"""Takes the fields ARGV away from KEYS[1], then gives those of the flushes that stand there."""
