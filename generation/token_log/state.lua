-- state(meta;) -> {epoch, last_seq, status, stop, lease_until_ms, tokens, now_ms}, or nil without
-- a log
--
-- Where a run's log stands, with Redis' own clock beside the lease, so that no other clock is
-- compared with it.
--
--   meta  run:{g}:m (see shared.lua)

local found = redis.call('HMGET', KEYS[1], 'epoch', 'seq', 'status', 'stop', 'lease_until_ms',
  'tokens')
if not found[1] then return false end
found[6] = found[6] or '0'
found[7] = ms_text(now_ms())
return found
