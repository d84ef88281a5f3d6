-- What the scripts of the token log share; scripts.py puts it in front of each of them.
--
-- Keys of a run (they carry one hash tag, so a cluster keeps them together):
--   run:{g}    stream, the log: entry id <seq>-0, fields e (the event's name) and d (its data, JSON)
--   run:{g}:m  hash, the meta:
--     epoch           the fencing number of the owner that may append
--     seq             the last seq that is in the log (or that an owner has gone past)
--     status          queued | running | ended
--     owner           the channel on which the owner hears of a stop; empty while nobody owns it
--     lease_until_ms  until when the owner is taken to be alive, on Redis' clock
--     expires_ms      when all three keys expire, on Redis' clock
--     stop            1 once somebody asked the run to stop
--     resync          1 while a reader waits for a snapshot
--     tokens          how many output tokens the text in the log has; not there: none
--     arrivals        how many watchers have come since there is a meta; not there: none
--   run:{g}:w  hash, who watches: gateway channel -> "<since_ms> <seen_ms>"
--
-- Seqs and epochs stay the strings they came as; tonumber serves to compare only (all of them are
-- below 2^53).

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- A number of milliseconds as a plain integer (tostring would give 1.7e+12).
local function ms_text(ms)
  return string.format('%.0f', ms)
end

-- The gateways seen within unseen_ms, as a flat list: channel, since_ms, ... Drops the others.
local function watching(watchers, now, unseen_ms)
  local found = {}
  local pairs_list = redis.call('HGETALL', watchers)
  for i = 1, #pairs_list, 2 do
    local since, seen = string.match(pairs_list[i + 1], '^(%d+) (%d+)$')
    if seen and tonumber(seen) + unseen_ms >= now then
      found[#found + 1] = pairs_list[i]
      found[#found + 1] = since
    else
      redis.call('HDEL', watchers, pairs_list[i])
    end
  end
  return found
end

-- One and the same expiry for the three keys.
local function expire_together(log, meta, watchers, at_ms)
  local at = ms_text(at_ms)
  redis.call('HSET', meta, 'expires_ms', at)
  for _, key in ipairs({log, meta, watchers}) do
    redis.call('PEXPIREAT', key, at)
  end
end

-- Adds the events ARGV[first], ... (seq, name, data each) whose seq is above last.
-- Returns the last seq then in the log, the name of the last event added (false: none), whether a
-- snapshot is among them, and whether the log itself turned out to be missing (nothing is added).
local function add_events(log, last, first, may_create)
  local name_added, refreshed = false, false
  for i = first, #ARGV, 3 do
    local seq, name = ARGV[i], ARGV[i + 1]
    if tonumber(seq) > tonumber(last) then
      local whole = name == 'snapshot' or name == 'retract'
      local id
      if name == 'retract' then
        -- What was taken back must leave the log, not only the screen.
        id = redis.call('XADD', log, 'MAXLEN', '1', seq .. '-0', 'e', name, 'd', ARGV[i + 2])
      elseif whole or name == 'start' or may_create then
        id = redis.call('XADD', log, seq .. '-0', 'e', name, 'd', ARGV[i + 2])
      else
        -- A log whose meta has outlived it must not begin again in the middle.
        id = redis.call('XADD', log, 'NOMKSTREAM', seq .. '-0', 'e', name, 'd', ARGV[i + 2])
      end
      if not id then return last, name_added, refreshed, true end
      last, name_added, refreshed = seq, name, refreshed or whole
    end
  end
  return last, name_added, refreshed, false
end
