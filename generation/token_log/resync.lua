-- resync(meta;) -> 1 where an owner will hear of it, else 0
--
-- A reader that cannot go on from the log asks its owner for a snapshot.
--
--   meta  run:{g}:m (see shared.lua)

local status = redis.call('HGET', KEYS[1], 'status')
if not status or status == 'ended' then return 0 end
redis.call('HSET', KEYS[1], 'resync', '1')
return 1
