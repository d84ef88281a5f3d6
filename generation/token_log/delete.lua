-- delete(log, meta, watchers; epoch, unseen_ms) -> 1 where the log is gone, 0 where it is not ours
--
-- Deletes a log unless a larger epoch owns it. Who watches is kept a little longer: those gateways
-- must still be told to look elsewhere.
--
--   log, meta, watchers  run:{g}, run:{g}:m, run:{g}:w (see shared.lua)
--   epoch                the caller's epoch
--   unseen_ms            after how long without a sign a watcher is gone

local epoch = redis.call('HGET', KEYS[2], 'epoch')
if epoch and tonumber(epoch) > tonumber(ARGV[1]) then return 0 end
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('PEXPIRE', KEYS[3], ARGV[2])
return 1
