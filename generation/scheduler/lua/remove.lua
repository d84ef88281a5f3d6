-- remove(run) -> 1 where it waited, else 0
--   Takes a run out of the queue wherever it stands; also while the pool is not built, for there
--   nothing can be wrong about a run that is gone. One that was popped is not touched.
-- KEYS as in shared.lua
-- ARGV 1 run
local packed = call('HGET', entries, ARGV[1])
if not packed then return 0 end
local entry = read_entry(packed)
take_out(ARGV[1], entry)
arrange(entry.class, entry.user, 'keep')
save_classes()
return 1
