-- rebuild(token, part, now_ms, run, packed entry, at work, ...) -> 1, or 0 where the lock was lost
--   Fills the queue again in several calls; only the last one sets the marker, so nobody meets a
--   queue that is half full. The first one empties what was left, but for what has not become wrong:
--   pauses, means, and the replicas that are there.
-- KEYS as in shared.lua
-- ARGV 1 token  2 "first", "more" or "last"; "none": only let go of the lock  3 now_ms or empty  then threes: a run, its packed entry,
--      and "" where it waits, "replica|since_ms" where it is at work
if call('GET', lock) ~= ARGV[1] then return 0 end
if ARGV[2] == 'none' then
  call('DEL', lock)
  return 1
end
local now = time_ms(ARGV[3])
if ARGV[2] == 'first' then
  call('DEL', built, entries, jobs, turns, lines, plans_at, users, running, busy)
  call('HDEL', tags, 'v', 'back', 'front', 'turn_back', 'turn_front', 'owed')
end
for i = 4, #ARGV, 3 do
  local run, packed = ARGV[i], ARGV[i + 1]
  if call('HEXISTS', entries, run) + call('HEXISTS', running, run) == 0 then
    local replica, since_ms = string.match(ARGV[i + 2], '^([^|]*)|(%d+)$')
    if replica then
      local entry = read_entry(packed)
      local class = class_of(entry.class)
      if entry.class ~= CHORES then class.weight, class.paid = entry.weight, entry.paid end
      -- Of no epoch: it was never charged here, so its end must give nothing back.
      record(run, entry, -1, replica, tonumber(since_ms))
    else
      add(run, packed, 'rebuilt', now)
    end
  end
end
save_classes()
if ARGV[2] == 'last' then
  call('SET', built, own_marker())
  call('DEL', lock)
end
return 1
