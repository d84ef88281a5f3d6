-- pop(replica, at work, slots, paid burst, now_ms) -> {built, wait_ms, run, packed entry}, or
--     {built, 0, replica}
--   Takes the run whose turn it is, and notes that this replica has it; run is missing where nobody
--   may be served. wait_ms above 0: somebody is kept for another replica, at most so long. A replica
--   alone: this one lacks a slot for those who wait, that one has one; it is sent the ticket.
--   Free plans are served below `slots`, paid ones below `slots + paid burst`, chores below `slots`
--   where no plan has anybody. Beyond `slots` a free plan is passed over whatever its tag; but where
--   paid ones have gone far past one, the burst stays closed until it has had a turn: or else, with
--   every slot taken by paid runs, it would never have one.
-- KEYS as in shared.lua
-- ARGV 1 replica  2 at work  3 slots  4 paid burst  5 now_ms or empty
if call('EXISTS', built) == 0 then return {0, 0} end
local me, now = ARGV[1], time_ms(ARGV[5])
local at_work, slots, burst = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local has_slot, has_burst = at_work < slots, at_work < slots + burst

-- The next run of the user that this member of the rotation names.
local function next_run(class, member)
  local user = string.match(member, '[^|]*$')
  local run = string.match(first_of(jobs, class.name .. '|' .. user, 1)[1], '[^|]*$')
  local packed = call('HGET', entries, run)
  return run, packed, read_entry(packed)
end

local kept_longest
local function first_run(class)
  for _, member in ipairs(first_of(turns, class.name, LOOK)) do
    local run, packed, entry = next_run(class, member)
    local kept = kept_ms(entry, me, now)
    if kept == 0 then return run, packed, entry end
    kept_longest = math.min(kept_longest or kept, kept)
  end
end

-- Whether this paid plan has had so much more than a free one that it leaves the burst empty.
local function is_far_ahead(class, plans)
  for _, other in ipairs(plans) do
    if not other.paid and (class.tag - other.tag) * other.weight > LAG_TOKENS then return true end
  end
  return false
end

local without_slot = {}  -- those whose runs a slot could serve, but there is none here
local function choose()
  local plans = ready_plans()
  for _, class in ipairs(plans) do
    if has_slot or (class.paid and has_burst and not is_far_ahead(class, plans)) then
      local run, packed, entry = first_run(class)
      if run then return run, packed, entry end
    else
      without_slot[#without_slot + 1] = class
    end
  end
  local chores = classes()[CHORES]
  if #plans == 0 and chores and chores.ready > 0 and call('HGET', tags, 'chores_paused') ~= '1' then
    if has_slot then return first_run(chores) end
    without_slot[1] = chores
  end
end

-- A replica with room for one of them whose ticket is nobody's yet, and it becomes that one's.
local function pass_on()
  for _, class in ipairs(without_slot) do
    for _, member in ipairs(first_of(turns, class.name, LOOK)) do
      local run, packed, entry = next_run(class, member)
      if entry.ticket_of == '' then
        local replica = replica_with_room(entry, entry.preferred, me, now)
        if replica == '' then break end
        call('HINCRBY', busy, 'w:' .. replica, 1)
        call('HSET', entries, run, packed .. replica)
        return replica
      end
    end
  end
end

local run, packed, entry
if call('HGET', tags, 'paused') ~= '1' then run, packed, entry = choose() end
if not run then
  local replica = not kept_longest and pass_on()
  if replica then return {1, 0, replica} end
  -- Its ticket is spent: whoever makes room, or ends a pause, publishes another.
  local depth = call('ZCARD', jobs)
  if not kept_longest and count(tags, 'owed') < depth then call('HINCRBY', tags, 'owed', 1) end
  return {1, kept_longest or 0}
end
local left = read_record(call('HGET', running, run))
if left then release(run, left, 0) end
take_out(run, entry)
local class = class_of(entry.class)
if entry.class ~= CHORES then
  if class.tag > count(tags, 'v') then call('HSET', tags, 'v', string.format('%.17g', class.tag)) end
  class.tag = class.tag + entry.cost / class.weight
end
record(run, entry, class.epoch, me, now)
arrange(entry.class, entry.user, 'tail')
if entry.class ~= CHORES then arrange_others(entry.user, entry.class) end
save_classes()
return {1, 0, run, packed}
