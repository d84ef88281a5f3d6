-- lost(now_ms, run, run, ...) -> those of them that neither wait nor were popped a moment ago
--   For runs that PostgreSQL has as queued: what is popped has no place, and its claim may be about
--   to commit.
-- KEYS as in shared.lua
-- ARGV 1 now_ms or empty  then runs
local now, missing = time_ms(ARGV[1]), {}
for i = 2, #ARGV do
  if call('HEXISTS', entries, ARGV[i]) == 0 then
    local found = read_record(call('HGET', running, ARGV[i]))
    if not found or found.popped_ms + CLAIM_MS <= now then missing[#missing + 1] = ARGV[i] end
  end
end
return missing
