-- rebuild(clock, name, window_s, tokens per minute, requests per minute, tokens level, requests level,
--         ended, {run, model, age ms} …, live: {run, model, age ms, tokens, requests} …) -> 1, or 0
--   Writes what was read of the ledger and of live runs, in one go, if the counters are still as they
--   were when it was read: not built, under the same name. Nothing can be reserved in that time, so
--   nothing is lost; of several who have read, the first one writes. Reservations that are there and
--   that PostgreSQL does not know (their rows are about to be committed) are kept, and counted.
-- KEYS 1 built  2 building  3 messages  4 open  5 twins  6 levels      (see shared.lua)
-- ARGV 1 clock, '' for Redis'  2 name  3 window_s  4 tokens per minute  5 requests per minute
--      6, 7 the levels that ended and live runs leave, in 60,000ths  8 how many triples of ended runs
--      follow; then fives of live ones (tokens: -1 where they are not counted)
local now = clock(ARGV[1])
if redis.call('GET', KEYS[2]) ~= ARGV[2] then return 0 end
local counts = tonumber(ARGV[3]) > 0
local levels = {tokens = tonumber(ARGV[6]), tokens_rate = tonumber(ARGV[4]) or 0,
  requests = tonumber(ARGV[7]), requests_rate = tonumber(ARGV[5]) or 0}
local before, known = redis.call('HGETALL', KEYS[4]), {}
for i = 1, #before, 2 do known[before[i]] = unpacked(before[i + 1]) end
redis.call('DEL', KEYS[3], KEYS[4], KEYS[6])

local function count(model, ms, run)
  if counts then redis.call('ZADD', KEYS[3], 0, member(model, ms, run)) end
end
local first_live = 9 + 3 * tonumber(ARGV[8])
for i = 9, first_live - 1, 3 do
  count(ARGV[i + 1], now - tonumber(ARGV[i + 2]), ARGV[i])
  known[ARGV[i]] = nil
end
for i = first_live, #ARGV, 5 do
  local run, same = ARGV[i], known[ARGV[i]]
  local one = {model = ARGV[i + 1], tokens = tonumber(ARGV[i + 3]), requests = tonumber(ARGV[i + 4]),
    ms = now - tonumber(ARGV[i + 2]), touched = now, holders = same and same.holders or 1, twin = same and same.twin or ''}
  count(one.model, one.ms, run)
  redis.call('HSET', KEYS[4], run, pack(one))
  known[run] = nil
end
for run, one in pairs(known) do
  one.tokens = ARGV[4] ~= '' and math.max(0, one.tokens) or -1
  one.requests = ARGV[5] ~= '' and 1 or 0
  count(one.model, one.ms, run)
  levels.tokens = levels.tokens + math.max(0, one.tokens) * MINUTE_MS
  levels.requests = levels.requests + one.requests * MINUTE_MS
  redis.call('HSET', KEYS[4], run, pack(one))
end
write_levels(KEYS[6], now, levels)
redis.call('DEL', KEYS[2])
redis.call('SET', KEYS[1], shape(ARGV[3], ARGV[4], ARGV[5]))
keep(KEYS[1], KEYS[3], KEYS[4], KEYS[5], KEYS[6])
return 1
