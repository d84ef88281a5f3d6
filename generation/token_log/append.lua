-- append(log, meta, watchers;
--        epoch, expected, lease_ms, live_ms, ended_ms, unseen_ms, [seq, name, data]...)
--   -> {code, epoch, last_seq, stop, resync, channel, since_ms, ...}
--
-- Adds a batch of events for the owner of an epoch, renews its lease, and tells it what readers
-- asked for meanwhile. A batch may be empty (a heartbeat) and may be sent again: entries that are
-- there already are skipped.
--
--   log, meta, watchers  run:{g}, run:{g}:m, run:{g}:w (see shared.lua)
--   epoch                the caller's epoch
--   expected             the last seq that the caller knows to be in the log
--   lease_ms             how long the lease is good for from now; 0 gives it up
--   live_ms, ended_ms    expiry of the three keys while the run lives, and after its end
--   unseen_ms            after how long without a sign a watcher is gone
--   seq, name, data      the events, seqs rising
--
-- code: OK       everything is in the log, last_seq is its end
--       FENCED   a larger epoch is there, or the run has ended and something new was to be added
--       BEHIND   the log ends before expected: Redis has lost something
--       MISSING  there is no log for this epoch
-- Everything but OK changes nothing.

local log, meta, watchers = KEYS[1], KEYS[2], KEYS[3]
local epoch, expected = ARGV[1], ARGV[2]
local lease_ms, live_ms, ended_ms = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])

local old = redis.call('HMGET', meta, 'epoch', 'seq', 'status', 'stop', 'resync', 'expires_ms')
local last, ended = old[2], old[3] == 'ended'
if not old[1] or tonumber(old[1]) < tonumber(epoch) then
  return {'MISSING', old[1] or '', '0', '0', '0'}
elseif tonumber(old[1]) > tonumber(epoch) then
  return {'FENCED', old[1], last, '0', '0'}
elseif tonumber(last) < tonumber(expected) then
  return {'BEHIND', epoch, last, '0', '0'}
elseif ended and #ARGV > 6 and tonumber(ARGV[#ARGV - 2]) > tonumber(last) then
  return {'FENCED', epoch, last, '0', '0'}
end

local now = now_ms()
local resync = old[5]
if not ended then
  local name, refreshed, missing
  last, name, refreshed, missing = add_events(log, last, 7, false)
  if missing then return {'MISSING', epoch, '0', '0', '0'} end
  if refreshed then resync = '0' end
  if name == 'done' then
    redis.call('HSET', meta, 'seq', last, 'status', 'ended', 'lease_until_ms', '0', 'resync', '0')
    expire_together(log, meta, watchers, now + ended_ms)
  else
    redis.call('HSET', meta, 'seq', last, 'lease_until_ms', ms_text(now + lease_ms),
      'resync', resync)
    -- Three PEXPIREAT per append would be a third of its cost; once in a while is enough.
    if now + live_ms - tonumber(old[6]) > live_ms / 60 then
      expire_together(log, meta, watchers, now + live_ms)
    end
  end
end

local reply = {'OK', epoch, last, old[4], resync}
for _, part in ipairs(watching(watchers, now, tonumber(ARGV[6]))) do reply[#reply + 1] = part end
return reply
