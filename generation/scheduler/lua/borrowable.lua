-- borrowable(most, trip_ms, now_ms) -> run, packed entry, wait_ms, run, packed entry, wait_ms, ...
--   The runs, at most so many, that a replica of another region should take over, paid plans first,
--   else in the order of their turns: those that would wait here for longer than the trip. Nothing is
--   taken out: the caller moves the row first.
--   wait_ms is the prediction; where nobody knows, how long the run has waited already.
--   Passed over: pinned runs, and those that were given back or lost an owner (what they have written
--   is at home); users at their cap. Whoever passes over a run keeps its user's later ones behind it.
-- KEYS as in shared.lua
-- ARGV 1 most  2 trip_ms  3 now_ms or empty
local most, trip, now = tonumber(ARGV[1]), tonumber(ARGV[2]), time_ms(ARGV[3])
local found, lent, looked = {}, 0, 0
local LOOK_FAR = 200  -- users that one call looks at: it must not stop Redis
if call('EXISTS', built) == 0 or call('HGET', tags, 'paused') == '1' then return found end

local rooms = {}
local function expected_ms(class, entry, passed)
  if not rooms[entry.paid] then rooms[entry.paid] = {pool_room(entry.paid, now)} end
  local slots, room = rooms[entry.paid][2], rooms[entry.paid][3]
  local runs, tokens = ahead(class, class.tag, passed)
  return wait_ms(class, runs, tokens, slots, room) or now - entry.queued_ms
end

-- Each user's next runs, as many as their cap leaves them; in the order of their turns.
local function lines_of(class)
  local found_lines = {}
  for _, member in ipairs(first_of(turns, class.name, LOOK_FAR - looked)) do
    local user = string.match(member, '[^|]*$')
    local line = class.name .. '|' .. user
    local cap = tonumber(string.match(call('HGET', lines, line), '|(%d+)$'))
    local free = cap - count(busy, 'u:' .. user)
    found_lines[#found_lines + 1] = first_of(jobs, line, math.min(most, math.max(1, free)))
    looked = looked + 1
  end
  return found_lines
end

local function lend_from(class)
  local waiting, passed, round = lines_of(class), 0, 1
  while #waiting > 0 do
    local still = {}
    for _, line in ipairs(waiting) do
      if lent == most then return end
      local run = string.match(line[round], '[^|]*$')
      local packed = call('HGET', entries, run)
      local entry = read_entry(packed)
      local stays = entry.pinned or tonumber(entry.place) < MIDDLE
      local wait = stays and 0 or expected_ms(class, entry, passed)
      if wait > trip then
        found[#found + 1], found[#found + 2], found[#found + 3] = run, packed, wait
        lent = lent + 1
        -- Those behind it find it gone. These changes are not saved.
        class.depth, class.cost = class.depth - 1, class.cost - entry.cost
        if line[round + 1] then still[#still + 1] = line end
      else
        passed = passed + 1
      end
    end
    waiting, round = still, round + 1
  end
end

local plans = ready_plans()
table.sort(plans, function(a, b)
  if a.paid ~= b.paid then return a.paid end
  return goes_first(a, b)
end)
for _, class in ipairs(plans) do
  if lent < most and looked < LOOK_FAR then lend_from(class) end
end
return found
