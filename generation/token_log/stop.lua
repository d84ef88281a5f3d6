-- stop(meta;) -> owner's channel, or nil
--
-- Sets the stop flag, which outlives a change of owner, and answers the channel on which the owner
-- can be told at once ('' while nobody owns the run; nil where there is no log). The next append
-- returns the flag, so a stop reaches the owner even where telling it fails.
--
--   meta  run:{g}:m (see shared.lua)

if redis.call('EXISTS', KEYS[1]) == 0 then return false end
redis.call('HSET', KEYS[1], 'stop', '1')
return redis.call('HGET', KEYS[1], 'owner') or ''
