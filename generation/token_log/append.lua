-- append(log, meta, watchers;
--        epoch, expected, lease_ms, known, live_ms, ended_ms, unseen_ms, tokens,
--        [seq, name, data]...)
--   -> {code, epoch, last_seq, stop, resync}, and unless `known` still holds
--      {..., arrivals, channel, since_ms, ...}
--
-- Adds a batch of events for the owner of an epoch and tells it what readers asked for meanwhile;
-- unless `known` still holds, renews its lease and tells it who watches. A batch may be empty (a
-- heartbeat) and may be sent again: entries that are there already are skipped.
--
--   log, meta, watchers  run:{g}, run:{g}:m, run:{g}:w (see shared.lua)
--   epoch                the caller's epoch
--   expected             the last seq that the caller knows to be in the log
--   lease_ms             how long the lease is good for from now; 0 gives it up
--   known                the caller has renewed its lease a moment ago, and knows who watches as of
--                        so many arrivals: while nobody came since, neither is looked at, which is
--                        a third of the whole. -1: ask
--   live_ms, ended_ms    expiry of the three keys while the run lives, and after its end
--   unseen_ms            after how long without a sign a watcher is gone
--   tokens               how many output tokens the answer has so far; -1: as many as before
--   seq, name, data      the events, seqs rising
--
-- code: OK       everything is in the log, last_seq is its end
--       FENCED   a larger epoch is there, or the run has ended and something new was to be added
--       BEHIND   the log ends before expected: Redis has lost something
--       MISSING  there is no log for this epoch
-- Everything but OK changes nothing.

local log, meta, watchers = KEYS[1], KEYS[2], KEYS[3]
local epoch, expected = ARGV[1], ARGV[2]

local old = redis.call('HMGET', meta, 'epoch', 'seq', 'status', 'stop', 'resync', 'arrivals',
  'expires_ms')
local last, ended = old[2], old[3] == 'ended'
if not old[1] or tonumber(old[1]) < tonumber(epoch) then
  return {'MISSING', old[1] or '', '0', '0', '0'}
elseif tonumber(old[1]) > tonumber(epoch) then
  return {'FENCED', old[1], last, '0', '0'}
elseif tonumber(last) < tonumber(expected) then
  return {'BEHIND', epoch, last, '0', '0'}
elseif ended and #ARGV > 8 and tonumber(ARGV[#ARGV - 2]) > tonumber(last) then
  return {'FENCED', epoch, last, '0', '0'}
end

local resync, name = old[5], false
if not ended then
  local refreshed, missing
  last, name, refreshed, missing = add_events(log, last, 9, false)
  if missing then return {'MISSING', epoch, '0', '0', '0'} end
  if refreshed then resync = '0' end
end

local tokens = ARGV[8]
if tokens == '-1' then tokens = redis.call('HGET', meta, 'tokens') or '0' end
local arrivals = old[6] or '0'
if arrivals == ARGV[4] and name ~= 'done' then
  if name then redis.call('HSET', meta, 'seq', last, 'resync', resync, 'tokens', tokens) end
  return {'OK', epoch, last, old[4], resync}
end

local now = now_ms()
if name == 'done' then
  redis.call('HSET', meta, 'seq', last, 'status', 'ended', 'lease_until_ms', '0', 'resync', '0')
  expire_together(log, meta, watchers, now + tonumber(ARGV[6]))
elseif not ended then
  redis.call('HSET', meta, 'seq', last, 'lease_until_ms', ms_text(now + tonumber(ARGV[3])),
    'resync', resync, 'tokens', tokens)
  -- Three PEXPIREAT per append would be a third of its cost; once in a while is enough.
  local live_ms = tonumber(ARGV[5])
  if now + live_ms - tonumber(old[7]) > live_ms / 60 then
    expire_together(log, meta, watchers, now + live_ms)
  end
end

local reply = {'OK', epoch, last, old[4], resync, arrivals}
for _, part in ipairs(watching(watchers, now, tonumber(ARGV[7]))) do reply[#reply + 1] = part end
return reply
