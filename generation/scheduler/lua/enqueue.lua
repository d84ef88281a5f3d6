-- enqueue(run, packed entry, place, replica, now_ms) -> {built, added, replica}
--   Puts a run into its pool's queue, once: a run that is there already keeps its place, and one that
--   was popped a moment ago may be claimed at any moment. The reply's replica is the one that its
--   ticket is for; empty: any of the pool.
--   At the front: a run that was popped by `replica` and is given back, or lost its owner (empty: no
--   matter whose it was). It stands before all others of its user, and its user before all others.
--   It is no more at work than it waits: its record goes, or where another replica has popped it a
--   moment ago, that one has it and nothing is added.
-- KEYS as in shared.lua
-- ARGV 1 run  2 packed entry  3 "back" or "front"  4 replica or empty  5 now_ms or empty
if call('EXISTS', built) == 0 then return {0, 0, ''} end
local run, is_front, now = ARGV[1], ARGV[3] == 'front', time_ms(ARGV[5])
local found = read_record(call('HGET', running, run))
local is_its_own = found and is_front and (ARGV[4] == '' or ARGV[4] == found.replica)
if call('HEXISTS', entries, run) == 1 then
  -- Both at once would count against its user for ever.
  if is_its_own then
    release(run, found, 0)
    save_classes()
  end
  return {1, 0, ''}
end
if found then
  if not is_its_own and found.popped_ms + CLAIM_MS > now then return {1, 0, ''} end
  release(run, found, 0)
end
local replica = add(run, ARGV[2], ARGV[3], now, found and found.replica or ARGV[4])
save_classes()
return {1, 1, replica}
