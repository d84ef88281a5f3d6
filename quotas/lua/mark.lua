-- mark(clock, user) -> 1
--   Notes that a user is about to have a reservation. The score always rises: whoever saw the one
--   before, and nothing held, must not take the user out any more. It rises by one, or whoever sends
--   all the time would never be looked at.
-- KEYS 1 index   zset user -> ms of the first mark or the last look, and the marks since
-- ARGV 1 clock, '' for Redis'  2 user
local before = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[2]) or nil)
redis.call('ZADD', KEYS[1], whole(before and before + 1 or clock(ARGV[1])), ARGV[2])
return 1
