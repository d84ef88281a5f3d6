-- due(clock, age ms, most) -> {user, score, …}
--   Users that nobody has looked at for so long; they count as looked at now, so that
--   several who sweep share the work. The score is what `forget` asks for.
-- KEYS 1 index                                                         (see mark.lua)
-- ARGV 1 clock, '' for Redis'  2 age ms  3 most
local now = clock(ARGV[1])
local found = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', whole(now - tonumber(ARGV[2])), 'LIMIT', 0, ARGV[3])
local reply = {}
for _, user in ipairs(found) do
  redis.call('ZADD', KEYS[1], whole(now), user)
  reply[#reply + 1] = user
  reply[#reply + 1] = whole(now)
end
return reply
