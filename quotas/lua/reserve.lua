-- reserve(clock, run, twin, window_s, tokens per minute, requests per minute, {model, messages, tokens} …)
--   -> {'not_built', name}
--    | {'held', run, which, joined, 0, '', now, tokens level, requests level, {used, newest ms, next in ms} …}
--    | {'refused', '', 0, 0, wait ms, limit, now, tokens level, requests level, {used, newest ms, next in ms} …}
--   Holds a message, a request and the largest cost in tokens, all of them or nothing, for the first
--   of the models that has a message left; `which` counts from 1. The second model is looked at only
--   where the messages to the first are used up. A run that is held already, and a twin of one, is
--   answered with it, whatever the limits say; a twin counts as another holder.
-- KEYS 1 built  2 building  3 messages  4 open  5 twins  6 levels      (see shared.lua)
-- ARGV 1 clock, '' for Redis'  2 run  3 twin, '' for none  4 window_s, 0 where no messages are counted
--      5 tokens per minute  6 requests per minute ('': no limit)  then triples: model, messages in the
--      window ('': no limit), largest cost in tokens
local now = clock(ARGV[1])
local run, twin = ARGV[2], ARGV[3]
local window_ms, per_minute, rate = tonumber(ARGV[4]) * 1000, tonumber(ARGV[5]), tonumber(ARGV[6])
if redis.call('GET', KEYS[1]) ~= shape(ARGV[4], ARGV[5], ARGV[6]) then return not_built(KEYS[1], KEYS[2], now) end
keep(KEYS[1], KEYS[3], KEYS[4], KEYS[5], KEYS[6])

local held = drained(KEYS[6], now)
held.tokens_rate, held.requests_rate = per_minute or 0, rate or 0

local function answer(code, of, which, joined, wait, limit)
  local reply = {code, of, which, joined, wait, limit, whole(now), whole(held.tokens), whole(held.requests)}
  for i = 7, #ARGV, 3 do
    local seen = window(KEYS[3], ARGV[i], tonumber(ARGV[i + 1]) or math.huge, window_ms, now)
    reply[#reply + 1] = {seen[1], whole(seen[2]), whole(seen[3])}
  end
  return reply
end

local function which_of(model)
  for i = 7, #ARGV, 3 do if ARGV[i] == model then return (i - 4) / 3 end end
  return 0
end

local known = redis.call('HGET', KEYS[4], run)
if known then return answer('held', run, which_of(unpacked(known).model), 0, 0, '') end
local first = twin ~= '' and redis.call('HGET', KEYS[5], twin)
known = first and redis.call('HGET', KEYS[4], first)
if known then
  local one = unpacked(known)
  one.holders, one.touched = one.holders + 1, now
  redis.call('HSET', KEYS[4], first, pack(one))
  return answer('held', first, which_of(one.model), 1, 0, '')
end

local chosen, cost, wait, limit = 0, 0, math.huge, ''
for i = 7, #ARGV, 3 do
  local most = tonumber(ARGV[i + 1])
  local of_messages = most and window(KEYS[3], ARGV[i], most, window_ms, now)[3] or 0
  local tokens = per_minute and math.min(tonumber(ARGV[i + 2]), per_minute) or -1
  local of_tokens = per_minute and wait_for(held.tokens, tokens, per_minute) or 0
  local of_requests = rate and wait_for(held.requests, 1, rate) or 0
  local longest = math.max(of_messages, of_tokens, of_requests)
  if longest < wait then
    wait = longest
    limit = of_messages == longest and 'messages' or of_tokens == longest and 'tokens' or 'requests'
  end
  if longest == 0 then chosen, cost = (i - 4) / 3, tokens end
  if longest == 0 or of_messages == 0 then break end
end
if chosen == 0 then
  write_levels(KEYS[6], now, held)
  return answer('refused', '', 0, 0, whole(wait), limit)
end

local model = ARGV[4 + 3 * chosen]
redis.call('ZREMRANGEBYLEX', KEYS[3], '[' .. model .. '|', '(' .. model .. '|' .. string.format('%016.0f', now - window_ms + 1))
if window_ms > 0 then redis.call('ZADD', KEYS[3], 0, member(model, now, run)) end
if per_minute then held.tokens = held.tokens + cost * MINUTE_MS end
if rate then held.requests = held.requests + MINUTE_MS end
write_levels(KEYS[6], now, held)
local one = {model = model, tokens = cost, requests = rate and 1 or 0, ms = now, touched = now, holders = 1, twin = twin}
redis.call('HSET', KEYS[4], run, pack(one))
if twin ~= '' then redis.call('HSET', KEYS[5], twin, run) end
keep(KEYS[3], KEYS[4], KEYS[5], KEYS[6])
return answer('held', run, chosen, 0, 0, '')
