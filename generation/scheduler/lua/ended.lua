-- ended(run, replica, spent, now_ms) -> {released, ticket}
--   A popped run is at work no more: its room is free, its plan pays what it has used, its user may
--   have another turn. Once: without a record nothing happens, nor where another replica has popped
--   it since. ticket 1: somebody waits whose ticket found no room; publish one.
-- KEYS as in shared.lua
-- ARGV 1 run  2 replica, or empty: no matter whose  3 tokens used, or empty: unknown  4 now_ms or empty
local run, now = ARGV[1], time_ms(ARGV[4])
local found = read_record(call('HGET', running, run))
if not found or (ARGV[2] ~= '' and ARGV[2] ~= found.replica) then return {0, 0} end
local spent = tonumber(ARGV[3]) or found.cost
release(run, found, spent)
save_classes()

local function add_to_mean(name, value)
  local before = tonumber(call('HGET', tags, name))
  local mean = before and before + SMOOTHING * (value - before) or value
  call('HSET', tags, name, string.format('%.17g', mean))
end

if ARGV[3] ~= '' and spent > 0 and found.class ~= CHORES and now > found.popped_ms then
  add_to_mean('charged', found.cost)
  add_to_mean('spent', spent)
  add_to_mean('charged:' .. found.class, found.cost)
  add_to_mean('spent:' .. found.class, spent)
  add_to_mean('took_ms', now - found.popped_ms)
end

if count(tags, 'owed') > 0 then
  lower(tags, 'owed')
  for _, class in pairs(classes()) do
    if class.ready > 0 then return {1, 1} end
  end
end
return {1, 0}
