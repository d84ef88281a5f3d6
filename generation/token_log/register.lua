-- register(meta, watchers; channel, unseen_ms) -> {epoch, last_seq, status}, or nil without a log
--
-- Notes that a gateway watches a run; renewed every 10 s, gone after unseen_ms. A gateway may come
-- before the log is there: whoever opens it finds the gateway waiting.
--
--   meta, watchers  run:{g}:m, run:{g}:w (see shared.lua)
--   channel         the gateway's channel
--   unseen_ms       after how long without a sign a watcher is gone

local meta, watchers = KEYS[1], KEYS[2]
local unseen_ms = tonumber(ARGV[2])
local now = now_ms()

local since, is_new = ms_text(now), true
local old = redis.call('HGET', watchers, ARGV[1])
if old then
  local old_since, old_seen = string.match(old, '^(%d+) (%d+)$')
  if old_seen and tonumber(old_seen) + unseen_ms >= now then
    since, is_new = old_since, false
  end
end
redis.call('HSET', watchers, ARGV[1], since .. ' ' .. ms_text(now))

local found = redis.call('HMGET', meta, 'epoch', 'seq', 'status', 'expires_ms')
redis.call('PEXPIREAT', watchers, found[4] or ms_text(now + unseen_ms))
if not found[1] then return false end
-- What an owner knows of who watches no longer holds.
if is_new then redis.call('HINCRBY', meta, 'arrivals', 1) end
return {found[1], found[2], found[3]}
