-- open(log, meta, watchers;
--      epoch, owner, status, base, when, lease_ms, live_ms, ended_ms, unseen_ms, tokens,
--      [seq, name, data]...)
--   -> {code, epoch, last_seq, found_seq, stop, arrivals, channel, since_ms, ...}
--
-- Creates the meta of a run for an epoch that PostgreSQL has minted, or takes it over. Nothing else
-- creates it.
--
--   log, meta, watchers  run:{g}, run:{g}:m, run:{g}:w (see shared.lua)
--   epoch                the caller's epoch
--   owner                the channel on which the caller hears of a stop ('' for a send)
--   status               queued | running
--   base                 the last seq that is spoken for: what follows is numbered above it
--   when                 always: add the events; behind: add them only where the log is missing
--                        or ends before base
--   lease_ms             how long the lease is good for
--   live_ms, ended_ms    expiry of the three keys while the run lives, and after its end
--   unseen_ms            after how long without a sign a watcher is gone
--   tokens               how many output tokens the text in these events has; -1: as many as before
--   seq, name, data      the events to begin with; those already there are skipped
--
-- code: OK, or FENCED: a larger epoch is there (epoch says which), or the run has ended.
-- found_seq is the last seq found before the call, 0 where there was no log.

local log, meta, watchers = KEYS[1], KEYS[2], KEYS[3]
local epoch, base, when = ARGV[1], ARGV[4], ARGV[5]
local live_ms, ended_ms, unseen_ms = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local now = now_ms()

local old = redis.call('HMGET', meta, 'epoch', 'seq', 'status', 'stop', 'resync', 'arrivals')
local found = old[2] or '0'
local stop = old[4] or '0'
if old[1] and (tonumber(old[1]) > tonumber(epoch) or old[3] == 'ended') then
  -- A send that repeats its opening after the end, or after a claim, changes nothing.
  return {'FENCED', old[1], found, found, stop, '0'}
end

local last = found
if redis.call('EXISTS', log) == 0 then found = '0' end
if tonumber(base) > tonumber(last) then last = base end

local name, refreshed = false, false
if when == 'always' or tonumber(found) < tonumber(base) then
  last, name, refreshed = add_events(log, last, 11, true)
end

redis.call('HSET', meta, 'epoch', epoch, 'seq', last, 'status', ARGV[3], 'owner', ARGV[2],
  'lease_until_ms', ms_text(now + tonumber(ARGV[6])), 'stop', stop,
  'resync', not refreshed and old[5] or '0')
if ARGV[10] ~= '-1' then redis.call('HSET', meta, 'tokens', ARGV[10]) end
local expires_in_ms = live_ms
if name == 'done' then
  redis.call('HSET', meta, 'status', 'ended', 'lease_until_ms', '0')
  expires_in_ms = ended_ms
end
expire_together(log, meta, watchers, now + expires_in_ms)

local reply = {'OK', epoch, last, found, stop, old[6] or '0'}
for _, part in ipairs(watching(watchers, now, unseen_ms)) do reply[#reply + 1] = part end
return reply
