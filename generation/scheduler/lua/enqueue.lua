-- enqueue(run, packed entry, place) -> {built, added, position}
--   Puts a run into its pool's queue, once: a run that is there already keeps its place.
-- KEYS 1 built    string, the server's run_id at the last rebuild; missing: the queue is not to be trusted
--      2 queue    zset run -> place (smaller goes first)
--      3 entries  hash run -> "user|cost_tokens|preferred replica"
--      4 users    hash user -> how many of this user's runs wait
--      5 ends     hash with the places given last: "back" counts up, "front" counts down; "asked"
--                 counts the sends that asked for room
-- ARGV 1 run  2 packed entry  3 "back" or "front"
if redis.call('EXISTS', KEYS[1]) == 0 then return {0, 0, 0} end
local added = 0
if redis.call('HSETNX', KEYS[3], ARGV[1], ARGV[2]) == 1 then
  local step = ARGV[3] == 'front' and -1 or 1
  local place = redis.call('HINCRBY', KEYS[5], ARGV[3], step)
  redis.call('ZADD', KEYS[2], place, ARGV[1])
  redis.call('HINCRBY', KEYS[4], string.match(ARGV[2], '^[^|]*'), 1)
  added = 1
end
return {1, added, redis.call('ZRANK', KEYS[2], ARGV[1]) + 1}
