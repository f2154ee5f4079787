-- At a target: keeps how many keys have left a source by now, behind the permit by which that was heard, in the field
-- "heard:ADDRESS". If another process of that source says less, it came back with older data. The field "undone:ADDRESS"
-- says how many keys it does not know to have left, at least.
-- It is no evidence: if a field is lost, nothing is said. A target that was restarted may have heard of an earlier move,
-- so it compares nothing. Only the migrator begins: for skipped slots, keys leave the source in other moves, too.
-- use: HEARD_FIELD, UNDONE_FIELD
local function hear_left(state, permit, source, left, begins)
  local field = HEARD_FIELD .. source
  local heard, most = string.match(redis.call('HGET', state, field) or '', '^(.*) (%d+)$')
  if not heard and not begins then return end
  left, most = tonumber(left), tonumber(most or 0)
  if heard == permit and left <= most then return end
  if heard and heard ~= permit and left < most then
    local source_before, target_before = string.match(heard, '^(%w+) (%w+) ')
    local source_now, target_now = string.match(permit, '^(%w+) (%w+) ')
    if source_before ~= source_now and target_before == target_now then
      redis.pcall('HINCRBY', state, UNDONE_FIELD .. source, most - left)
    end
  end
  redis.pcall('HSET', state, field, permit .. ' ' .. left)
end
