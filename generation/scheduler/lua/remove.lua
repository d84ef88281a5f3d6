-- remove(run) -> 1 where it waited, else 0
--   Takes a run out of the queue wherever it stands; also while the pool is not built, for there
--   nothing can be wrong about a run that is gone.
-- KEYS 1 queue  2 entries  3 users              (see enqueue.lua)
-- ARGV 1 run
if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then return 0 end
local packed = redis.call('HGET', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
local user = string.match(packed, '^[^|]*')
if redis.call('HINCRBY', KEYS[3], user, -1) <= 0 then redis.call('HDEL', KEYS[3], user) end
return 1
