-- beat(replica, slots, paid burst, at work, now_ms) -> {built, waiting, paid, ready, lost replica, ...}
--   A replica tells of itself, once a second; slots 0: it begins no run now. It hears how many runs a
--   slot could serve, how many of them the burst could, and how many users have an answer that a slot
--   could begin now: none of them chores, or at their cap. A replica that has not been heard of for
--   long is forgotten, and named to the one who finds it so; looked for every LOST_MS, for with many
--   replicas each would else read all the others every second.
-- KEYS as in shared.lua
-- ARGV 1 replica  2 slots  3 paid burst  4 at work  5 now_ms or empty
local LOST_MS = 3000
local now = time_ms(ARGV[5])
call('HSET', replicas_at, ARGV[1], ARGV[2] .. '|' .. ARGV[3] .. '|' .. ARGV[4] .. '|' .. whole(now))
local lost = {}
local looked_ms = count(tags, 'looked_ms')
-- One that lies ahead is of a clock that was set back.
if looked_ms + LOST_MS <= now or looked_ms > now then
  call('HSET', tags, 'looked_ms', whole(now))
  local all = call('HGETALL', replicas_at)
  for i = 1, #all, 2 do
    if not read_replica(all[i + 1], now) then
      call('HDEL', replicas_at, all[i])
      lost[#lost + 1] = all[i]
    end
  end
end
local waiting, paid, ready = 0, 0, 0
if call('HGET', tags, 'paused') ~= '1' then
  for _, class in ipairs(ready_plans()) do
    waiting, ready = waiting + class.depth, ready + class.ready
    if class.paid then paid = paid + class.depth end
  end
  local chores = classes()[CHORES]
  if chores and chores.ready > 0 and call('HGET', tags, 'chores_paused') ~= '1' then
    waiting = waiting + chores.depth
  end
end
return {call('EXISTS', built), waiting, paid, ready, unpack(lost)}
