-- look(clock, window_s, tokens per minute, requests per minute, {model, messages} …)
--   -> {'not_built', name} | {'built', now, tokens level, requests level, {used, newest ms, next in ms} …}
--   How the limits stand; nothing is held.
-- KEYS 1 built  2 building  3 messages  4 levels                       (see shared.lua)
-- ARGV 1 clock, '' for Redis'  2 window_s  3 tokens per minute  4 requests per minute ('': no limit)
--      then pairs: model, messages in the window ('': no limit)
local now = clock(ARGV[1])
if redis.call('GET', KEYS[1]) ~= shape(ARGV[2], ARGV[3], ARGV[4]) then return not_built(KEYS[1], KEYS[2], now) end
local held = drained(KEYS[4], now)
local reply = {'built', whole(now), whole(held.tokens), whole(held.requests)}
for i = 5, #ARGV, 2 do
  local seen = window(KEYS[3], ARGV[i], tonumber(ARGV[i + 1]) or math.huge, tonumber(ARGV[2]) * 1000, now)
  reply[#reply + 1] = {seen[1], whole(seen[2]), whole(seen[3])}
end
return reply
