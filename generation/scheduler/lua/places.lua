-- places(now_ms, run, run, ...) -> position, wait_ms, position, wait_ms, ...
--   Where each stands: the position from 1, 0 where it does not wait; wait_ms -1 where nobody knows.
--   Exact in a pool with one plan where each user has one run; else about right, for others may come.
-- KEYS as in shared.lua
-- ARGV 1 now_ms or empty  then runs
local now, replies = time_ms(ARGV[1]), {}
local is_paused = call('HGET', tags, 'paused') == '1'
local room = {}

local function room_for(paid)
  if not room[paid] then room[paid] = {pool_room(paid, now)} end
  return room[paid][2], room[paid][3]
end

local function place(run, entry)
  local class, line = classes()[entry.class], entry.class .. '|' .. entry.user
  local own = call('ZLEXCOUNT', jobs, '[' .. line .. '|', '(' .. line .. '|' .. entry.place .. '|' .. run)
  local turn, cap = string.match(call('HGET', lines, line), '^([^|]*)|(%d+)$')
  local rank = class.ready
  if turn ~= PARKED then
    local from = '[' .. entry.class .. '|'
    rank = call('ZLEXCOUNT', turns, from, '(' .. entry.class .. '|' .. turn .. '|' .. entry.user)
  end
  local own_runs = math.min(before_in_class(class, rank, own), class.depth - 1)
  local runs, tokens = ahead(class, class.tag, own_runs)
  local slots, free = room_for(entry.paid)
  local wait = not is_paused and wait_ms(class, runs, tokens, slots, free) or nil
  -- Whoever is at their cap waits for runs of their own.
  local beyond = count(busy, 'u:' .. entry.user) + own + 1 - tonumber(cap)
  if wait and beyond > 0 and entry.class ~= CHORES then
    wait = math.max(wait, math.ceil(count(tags, 'took_ms') * beyond / tonumber(cap)))
  end
  return runs + 1, wait or -1
end

for i = 2, #ARGV do
  local packed = call('HGET', entries, ARGV[i])
  local position, wait = 0, -1
  if packed then position, wait = place(ARGV[i], read_entry(packed)) end
  replies[#replies + 1] = position
  replies[#replies + 1] = wait
end
return replies
