-- release(clock, run, untouched ms) -> 1 where the reservation is gone now, else 0
--   Of a send that failed ('' untouched ms): it is no holder any more; with the last one everything
--   goes back. Of the sweep: everything, where nobody has touched it for so long; a twin may have come
--   since PostgreSQL was asked.
-- KEYS 1 messages  2 open  3 twins  4 levels                           (see shared.lua)
-- ARGV 1 clock, '' for Redis'  2 run  3 untouched ms
local known = redis.call('HGET', KEYS[2], ARGV[2])
if not known then return 0 end
local one, now = unpacked(known), clock(ARGV[1])
if ARGV[3] ~= '' then
  if now - one.touched < tonumber(ARGV[3]) then return 0 end
elseif one.holders > 1 then
  one.holders = one.holders - 1
  redis.call('HSET', KEYS[2], ARGV[2], pack(one))
  return 0
end
close(KEYS[1], KEYS[2], KEYS[3], KEYS[4], now, ARGV[2], one, 0, false, false)
keep(KEYS[1], KEYS[2], KEYS[3], KEYS[4])
return 1
