-- pop(replica) -> {built, run, packed entry}; run is nil where nobody waits
--   Takes the run whose turn it is. The replica asks so that locality can decide later; a plain
--   first-in-first-out queue treats all replicas alike.
-- KEYS 1 built  2 queue  3 entries  4 users     (see enqueue.lua)
-- ARGV 1 replica
if redis.call('EXISTS', KEYS[1]) == 0 then return {0} end
local first = redis.call('ZPOPMIN', KEYS[2])
if #first == 0 then return {1} end
local run = first[1]
local packed = redis.call('HGET', KEYS[3], run)
redis.call('HDEL', KEYS[3], run)
local user = string.match(packed, '^[^|]*')
if redis.call('HINCRBY', KEYS[4], user, -1) <= 0 then redis.call('HDEL', KEYS[4], user) end
return {1, run, packed}
