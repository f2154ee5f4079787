"""A flush while slots move: scripts that stop all movers until the flush is over at every server.

A flush has to take each key away at one moment, even while keys move. A key at its source goes with the source's flush,
any other key with the target's. That holds as long as no process learns during the flush that a key has left its
source. Such a process would write the key at the target, and the target's flush would delete that write. So:

1. The flush *withholds* the permit (:mod:`slots.permits`) at every server. One step removes the permit by which keys
   leave it, the permit by which keys come, and the claims. The same step sets a field ``flush:token`` in
   :data:`slots.moving.STATE`. Its value is the server's run id. From then on, steps that are on their way do nothing.
2. Every server is flushed, in any order. Each checks in the same step that the field is there, set for this very
   process (**run-id**).
3. The fields are removed. If one is no longer there, the client gets an error: do it again.

A permit is set at a server only if no flush field is there. That is checked in the same step, at the target first. All
fields are set before the first server is flushed. So a permit that holds was set at both ends either before the flush
reached them, and goes with the first field, or after the flush was over at both. A slot's move is complete only once
neither end has a flush field. That is checked after the scan of the source.

A process that dies during its flush leaves its fields. A process that waits for such a field removes it at both ends
after :data:`TAKEN_OVER_SECONDS` by its own clock. If the flush still arrives after that, it is refused.

Several flushes may run at once: each takes away the keys that it finds at its own moments.
"""

from slots.connections import BY_EFFECTS

FIELD = "flush:"
"""The prefix of the names of flush fields."""
TAKEN_OVER_SECONDS = 10.0
"""After this time a process that waits for a flush takes the flusher for dead."""

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
"""For scripts: removes every field of ``state`` except the fields of flushes."""

WITHHOLD = (
    _BEGIN
    + KEEP_FLUSHES
    + """
redis.call('HSET', state, ARGV[1], run_id())
return 1
"""
)
"""Withholds the permit at KEYS[1], for the flush whose field is ARGV[1]. A process that renews the permit waits
meanwhile."""

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
"""Runs a FLUSHDB or FLUSHALL (ARGV[3] and the arguments after it) in database ARGV[2], if the field ARGV[1] is there.

An empty ARGV[1] means that no field is needed. The keys of KEYS survive the flush; the first of them has the field. All
of it is one step: no other process finds one of these keys missing, and none sees an effect of the flush before it can
see the flush itself.
"""

RELEASE = (
    _BEGIN
    + """
local mark = redis.call('HGET', state, ARGV[1])
redis.call('HDEL', state, ARGV[1])
return mark == run_id() and 1 or 0
"""
)
"""Removes the field ARGV[1] of KEYS[1]; says whether it was there, set for this very process."""

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
"""Removes the fields ARGV from KEYS[1], then gives the fields of the flushes that are still there."""
