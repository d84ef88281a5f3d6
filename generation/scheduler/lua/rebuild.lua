-- rebuild(token, part, run, packed entry, run, packed entry, ...) -> 1, or 0 where the lock was lost
--   Fills the queue again in several calls; only the last one sets the marker, so nobody meets a
--   queue that is half full. The first one empties what was left.
-- KEYS 1 built  2 queue  3 entries  4 users  5 ends   (see enqueue.lua)
--      6 lock     string, the token of the one who rebuilds
-- ARGV 1 token  2 "first", "more" or "last"  then pairs
if redis.call('GET', KEYS[6]) ~= ARGV[1] then return 0 end
if ARGV[2] == 'first' then redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]) end
for i = 3, #ARGV, 2 do
  if redis.call('HSETNX', KEYS[3], ARGV[i], ARGV[i + 1]) == 1 then
    redis.call('ZADD', KEYS[2], redis.call('HINCRBY', KEYS[5], 'back', 1), ARGV[i])
    redis.call('HINCRBY', KEYS[4], string.match(ARGV[i + 1], '^[^|]*'), 1)
  end
end
if ARGV[2] == 'last' then
  redis.call('SET', KEYS[1], string.match(redis.call('INFO', 'server'), 'run_id:(%x+)'))
  redis.call('DEL', KEYS[6])
end
return 1
