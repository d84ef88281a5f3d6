-- What every script over a user's counters has in common. The keys, all with the hash tag {u:<user>}:
--   built     string "<server's run_id>|<window_s>|<1: tokens are counted>|<1: requests are>": what the
--             counters were built for; missing: they are not to be trusted. window_s is 0 where no
--             messages are counted
--   building  string, a name for the time in which they are not built: who read the ledger under it
--             may write what was read
--   messages  zset, score 0, "model|16 digits of ms|run": the messages in the window, in their order
--   open      hash run -> "model|tokens|requests|ms|touched ms|holders|twin": reservations that are not
--             settled; tokens is what the bucket was charged, -1 where tokens were not counted
--   twins     hash twin -> run: the run allotted to a key together with its body
--   levels    hash at (ms), tokens, tokens_rate, requests, requests_rate: what the buckets hold, in
--             60,000ths, and what they have lost each ms since `at`
local IDLE_MS = 3600000
local BUILDING_MS = 60000
local MINUTE_MS = 60000

local function whole(number) return string.format('%.0f', number) end

-- Tests have a clock of their own; else it is Redis'.
local function clock(given)
  if given ~= '' then return tonumber(given) end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function shape(window_s, per_minute, requests)
  local server = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  return table.concat({server, window_s, per_minute ~= '' and '1' or '0', requests ~= '' and '1' or '0'}, '|')
end

-- Stale counters heal: an hour after their last use they are built again.
local function keep(...)
  for _, key in ipairs({...}) do redis.call('PEXPIRE', key, IDLE_MS) end
end

local function not_built(built, building, now)
  redis.call('DEL', built)
  local name = redis.call('GET', building)
  if not name then
    local time = redis.call('TIME')
    name = time[1] .. '.' .. time[2]
    redis.call('SET', building, name, 'PX', BUILDING_MS)
  end
  return {'not_built', name}
end

-- The levels as they are now. The time that has passed counts at the rates that held in it.
local function drained(levels, now)
  local found = redis.call('HMGET', levels, 'at', 'tokens', 'tokens_rate', 'requests', 'requests_rate')
  local passed = math.max(0, math.min(now - tonumber(found[1] or now), IDLE_MS))
  local function left(level, rate) return math.max(0, tonumber(level or 0) - passed * tonumber(rate or 0)) end
  return {
    tokens = left(found[2], found[3]), tokens_rate = tonumber(found[3] or 0),
    requests = left(found[4], found[5]), requests_rate = tonumber(found[5] or 0),
  }
end

local function write_levels(levels, now, held)
  redis.call('HSET', levels, 'at', whole(now), 'tokens', whole(held.tokens), 'tokens_rate', whole(held.tokens_rate),
    'requests', whole(held.requests), 'requests_rate', whole(held.requests_rate))
end

local function member(model, ms, run) return model .. '|' .. string.format('%016.0f', ms) .. '|' .. run end

local function pack(one)
  return table.concat({one.model, whole(one.tokens), whole(one.requests), whole(one.ms), whole(one.touched), whole(one.holders), one.twin}, '|')
end

local function unpacked(text)
  local model, tokens, requests, ms, touched, holders, twin = string.match(text, '^([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)$')
  return {model = model, tokens = tonumber(tokens), requests = tonumber(requests), ms = tonumber(ms),
    touched = tonumber(touched), holders = tonumber(holders), twin = twin}
end

-- The reservation goes; what it held of tokens becomes `tokens`, of requests and messages nothing
-- unless they are kept.
local function close(messages, open, twins, levels, now, run, one, tokens, keeps_request, keeps_message)
  local held = drained(levels, now)
  if one.tokens >= 0 then held.tokens = math.max(0, held.tokens + (tokens - one.tokens) * MINUTE_MS) end
  if not keeps_request then held.requests = math.max(0, held.requests - one.requests * MINUTE_MS) end
  write_levels(levels, now, held)
  if not keeps_message then redis.call('ZREM', messages, member(one.model, one.ms, run)) end
  redis.call('HDEL', open, run)
  if one.twin ~= '' and redis.call('HGET', twins, one.twin) == run then redis.call('HDEL', twins, one.twin) end
end

-- {used, newest ms, ms until one more message fits}: the messages to a model that are in the window.
local function window(messages, model, limit, window_ms, now)
  local from = '[' .. model .. '|' .. string.format('%016.0f', now - window_ms + 1)
  local to = '[' .. model .. '|~'
  local used = redis.call('ZLEXCOUNT', messages, from, to)
  if used == 0 then return {0, 0, 0} end
  local function ms_of(found) return tonumber(string.match(found[1], '|(%d+)|')) end
  local newest = ms_of(redis.call('ZREVRANGEBYLEX', messages, to, from, 'LIMIT', 0, 1))
  if used < limit then return {used, newest, 0} end
  local last_over = ms_of(redis.call('ZRANGEBYLEX', messages, from, to, 'LIMIT', used - limit, 1))
  return {used, newest, last_over + window_ms - now}
end

local function wait_for(level, charge, per_minute)
  return math.max(0, math.ceil((level + charge * MINUTE_MS - per_minute * MINUTE_MS) / per_minute))
end
