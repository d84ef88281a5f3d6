-- What the scripts of the queue share; calls.py puts it in front of each of them.
--
-- Every script is called with all keys of its pool, in this order (one hash tag, a fixed set):
--   1 built     string, the server's run_id at the last rebuild and the FORMAT of the keys; missing: the
--               queue is not to be trusted
--   2 entries   hash run -> "user|plan|weight|paid|cap|cost|kind|conversation|pinned|place|queued_ms|
--               preferred replica|ticket of": what the caller packed, and four fields of ours. The last
--               one is empty where the ticket is anybody's
--   3 jobs      zset, all scores 0, members "class|user|place|run": who waits, each user's line in order
--   4 turns     zset, all scores 0, members "class|turn|user": the rotation of each class; only users
--               who may be served now
--   5 lines     hash "class|user" -> "turn|cap", where turn is "-" for a user at their cap (parked)
--   6 plans     hash class -> "tag|epoch|slack|weight|paid|depth|cost|ready"
--   7 tags      hash with what there is one of in a pool:
--     v                      virtual time: the largest start tag that was served
--     back, front            places given last: behind all others, before all others
--     turn_back, turn_front  turns given last, the same way
--     owed                   tickets that found nobody who could be served, while somebody waited
--     asked                  how many sends asked for room
--     looked_ms              when somebody last looked for replicas that are there no more
--     paused, chores_paused  1 while no run, or no chore, is begun here
--     charged, spent, took_ms  means of the runs that ended: tokens charged at the pop, tokens used,
--                              and how long they were at work
--     charged:<class>, spent:<class>  the same of each class
--   8 users     hash user -> how many of this user's runs wait
--   9 running   hash run -> "user|class|cost|epoch|replica|popped_ms": popped, and not ended
--  10 busy      hash of counts: "u:<user>", "c:<class>" and "r:<replica>" at work (chores are no
--               user's), "w:<replica>" wait with a ticket of that replica
--  11 replicas  hash name -> "slots|paid_burst|at work|seen_ms", as each told last
--  12 lock      string, the token of the one who rebuilds
--
-- A class is a plan, or "~": all chores together. Places and turns have 16 digits, so that the order
-- of their texts is theirs; what goes to the front counts down from the middle. Only users of a class
-- that are in its rotation are `ready`. A class' tag is the start tag of its next run in tokens by
-- weight; its epoch counts the times it became ready, and slack is what of its tag is from before.
-- `now_ms` comes from the caller where its time is not Redis' (simulations), else it is empty.

local built, entries, jobs, turns, lines, plans_at, tags, users, running, busy, replicas_at, lock =
  unpack(KEYS)
local call = redis.call

local FORMAT = '/3'        -- another one for each change of what the keys hold
local CHORES = '~'
local PARKED = '-'
local MIDDLE = 5000000000000000
local CLAIM_MS = 10000     -- a popped run's claim has committed by then, or never will
local LOCALITY_MS = 150    -- how long a run waits for the replica that may hold its prefix
local HEARD_MS = 3000      -- a replica tells of itself every second: nobody waits for a silent one
local FRESH_MS = 15000     -- and one that is silent for so long is forgotten
local LOOK = 8             -- users of a class that a pop looks at, where the first prefer others
local LAG_TOKENS = 65536   -- what a free plan may be behind before the burst waits for it
local SMOOTHING = 0.05     -- weight of the newest run in the means

local function time_ms(given)
  if given ~= '' then return tonumber(given) end
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function own_marker()
  return string.match(call('INFO', 'server'), 'run_id:(%x+)') .. FORMAT
end

local function whole(number) return string.format('%.0f', number) end

local function split(text)
  local parts = {}
  for part in string.gmatch(text .. '|', '([^|]*)|') do parts[#parts + 1] = part end
  return parts
end

-- A count that is gone where it would be 0.
local function lower(hash, field)
  if call('HINCRBY', hash, field, -1) <= 0 then call('HDEL', hash, field) end
end

local function count(hash, field) return tonumber(call('HGET', hash, field) or 0) end

local function first_of(zset, prefix, most)
  return call('ZRANGEBYLEX', zset, '[' .. prefix .. '|', '(' .. prefix .. '}', 'LIMIT', 0, most)
end

local function read_entry(text)
  local f = split(text)
  return {
    user = f[1], plan = f[2], weight = tonumber(f[3]), paid = f[4] == '1', cap = tonumber(f[5]),
    cost = tonumber(f[6]), class = f[7] == 'chore' and CHORES or f[2], conversation = f[8],
    pinned = f[9] == '1', place = f[10], queued_ms = tonumber(f[11]), preferred = f[12],
    ticket_of = f[13],
  }
end

-- --- classes ------------------------------------------------------------------------------------

local loaded, changed

local function classes()
  if loaded then return loaded end
  loaded, changed = {}, {}
  local all = call('HGETALL', plans_at)
  for i = 1, #all, 2 do
    local f = split(all[i + 1])
    loaded[all[i]] = {
      name = all[i], tag = tonumber(f[1]), epoch = tonumber(f[2]), slack = tonumber(f[3]),
      weight = tonumber(f[4]), paid = f[5] == '1', depth = tonumber(f[6]), cost = tonumber(f[7]),
      ready = tonumber(f[8]),
    }
  end
  return loaded
end

-- The class to be changed; `save_classes` writes it.
local function class_of(name)
  local known = classes()
  if not known[name] then
    known[name] = {
      name = name, tag = 0, epoch = 0, slack = 0, weight = 1, paid = false, depth = 0, cost = 0,
      ready = 0,
    }
  end
  changed[name] = true
  return known[name]
end

local function save_classes()
  for name in pairs(changed or {}) do
    local c = loaded[name]
    call('HSET', plans_at, name, string.format('%.17g|%.0f|%.17g|%.0f|%d|%.0f|%.0f|%.0f',
      c.tag, c.epoch, c.slack, c.weight, c.paid and 1 or 0, c.depth, c.cost, c.ready))
  end
end

-- Whether a goes before b where their tags are the same.
local function outranks(a, b)
  if a.paid ~= b.paid then return a.paid end
  if a.weight ~= b.weight then return a.weight > b.weight end
  return a.name < b.name
end

local function goes_first(a, b)
  if a.tag ~= b.tag then return a.tag < b.tag end
  return outranks(a, b)
end

-- The plans with somebody who may be served, first the one whose turn it is. No chores.
local function ready_plans()
  local found = {}
  for name, class in pairs(classes()) do
    if name ~= CHORES and class.ready > 0 then found[#found + 1] = class end
  end
  table.sort(found, goes_first)
  return found
end

-- Where a plan begins that comes now: at the virtual time, but not behind what the others have come
-- to on the average. Theirs goes down when their runs cost less than was charged.
local function standing()
  local v, weights, sum = count(tags, 'v'), 0, 0
  for _, class in ipairs(ready_plans()) do
    weights = weights + class.weight
    sum = sum + class.weight * class.tag
  end
  if weights > 0 and sum / weights < v then return sum / weights end
  return v
end

local function becomes_ready(class)
  if class.ready == 0 and class.name ~= CHORES then
    local now_at = standing()
    class.epoch, class.slack = class.epoch + 1, math.max(0, class.tag - now_at)
    -- Those who were away have no share saved up.
    class.tag = math.max(class.tag, now_at)
  end
  class.ready = class.ready + 1
end

-- A run that was charged in this epoch has used more or less than that. What an earlier one gives back
-- is worth no more than what was left of it when the plan came again: or else it would be credit for
-- the time in which nobody of it waited.
local function settle(class, epoch, difference)
  local change = difference / class.weight
  if class.epoch ~= epoch then
    if class.slack <= 0 or epoch < 0 then return end
    change = math.max(change, -class.slack)
    class.slack = class.slack + change
  end
  class.tag = class.tag + change
end

-- --- users --------------------------------------------------------------------------------------

local function counted(field, is_front)
  local step = call('HINCRBY', tags, field .. (is_front and 'front' or 'back'), 1)
  return string.format('%016.0f', is_front and MIDDLE - step or MIDDLE + step)
end

-- Gives a user the standing in a class that they should have, after something changed.
--   how  'keep' where they stand; 'tail' or 'front' of the rotation. Who comes stands at the tail.
--   cap  nil: as known
local function arrange(class_name, user, how, cap)
  local line = class_name .. '|' .. user
  local turn, known_cap = string.match(call('HGET', lines, line) or '', '^([^|]*)|(%d+)$')
  cap = cap or tonumber(known_cap)
  local waits = #first_of(jobs, line, 1) > 0
  local stands = turn ~= nil and turn ~= PARKED
  local shall = waits and (class_name == CHORES or count(busy, 'u:' .. user) < cap)
  if stands and not (shall and how == 'keep') then
    call('ZREM', turns, class_name .. '|' .. turn .. '|' .. user)
  end
  if stands and not shall then
    local class = class_of(class_name)
    class.ready = class.ready - 1
  elseif shall and not stands then
    becomes_ready(class_of(class_name))
  end
  if not waits then
    if turn then call('HDEL', lines, line) end
    return
  end
  if not shall then
    turn = PARKED
  elseif not stands or how ~= 'keep' then
    turn = counted('turn_', how == 'front')
    call('ZADD', turns, 0, class_name .. '|' .. turn .. '|' .. user)
  end
  call('HSET', lines, line, turn .. '|' .. cap)
end

-- The same in all classes but one, after how many of the user's runs are at work has changed.
local function arrange_others(user, but)
  local names, at = {}, {}
  for name in pairs(classes()) do
    if name ~= but then names[#names + 1] = name end
  end
  if #names == 0 then return end
  table.sort(names)
  for i, name in ipairs(names) do at[i] = name .. '|' .. user end
  local found = call('HMGET', lines, unpack(at))
  for i, name in ipairs(names) do
    if found[i] then arrange(name, user, 'keep') end
  end
end

-- --- replicas -----------------------------------------------------------------------------------

local function read_replica(text, now)
  if not text then return nil end
  local slots, burst, seen_ms = string.match(text, '^(%d+)|(%d+)|%d+|(%d+)$')
  if tonumber(seen_ms) + FRESH_MS < now then return nil end
  local is_heard = tonumber(seen_ms) + HEARD_MS >= now
  return {slots = tonumber(slots), burst = tonumber(burst), is_heard = is_heard}
end

-- Those heard of lately, by this script's time. Read once: nothing that uses them changes them.
local fresh
local function fresh_replicas(now)
  if fresh then return fresh end
  fresh = {}
  local all = call('HGETALL', replicas_at)
  for i = 1, #all, 2 do
    local replica = read_replica(all[i + 1], now)
    if replica then
      replica.name = all[i]
      fresh[#fresh + 1] = replica
    end
  end
  return fresh
end

local function most_of(replica, paid)
  return replica.is_heard and replica.slots + (paid and replica.burst or 0) or 0
end

local function room_of(name, replica, paid)
  local most = most_of(replica, paid)
  return most > 0 and math.max(0, most - count(busy, 'r:' .. name)) or 0
end

-- The replica that this conversation's turns go to, of those heard of lately: the same for each
-- turn, and when one goes only its own conversations move. '' where there is none.
local function replica_for(conversation, now)
  local best, best_hash = '', ''
  for _, replica in ipairs(fresh_replicas(now)) do
    if replica.slots > 0 then
      local hash = redis.sha1hex(replica.name .. '|' .. conversation)
      if hash > best_hash then best, best_hash = replica.name, hash end
    end
  end
  return best
end

-- Whose ticket a run is, of those that have room for it and for what else comes to them: the one
-- that it prefers, else the one with the most room. '' where all are full. Not that of `but`.
local function replica_with_room(entry, preferred, but, now)
  local best, most, asked = '', 0, {}
  local found, is_paid = fresh_replicas(now), entry.paid and entry.class ~= CHORES
  if #found == 0 then return '' end
  for i, replica in ipairs(found) do
    asked[2 * i - 1], asked[2 * i] = 'r:' .. replica.name, 'w:' .. replica.name
  end
  local counts = call('HMGET', busy, unpack(asked))
  for i, replica in ipairs(found) do
    local name, at_work, coming = replica.name, counts[2 * i - 1] or 0, counts[2 * i] or 0
    local room = most_of(replica, is_paid) - at_work - coming
    if room > 0 and name ~= but then
      if name == preferred then return name end
      if room > most or (room == most and name < best) then best, most = name, room end
    end
  end
  return best
end

-- How long (ms) a run is still kept for another replica than this one.
local function kept_ms(entry, name, now)
  local preferred = entry.preferred
  if preferred == '' or preferred == name then return 0 end
  local left = entry.queued_ms + LOCALITY_MS - now
  if left <= 0 then return 0 end
  local replica = read_replica(call('HGET', replicas_at, preferred), now)
  return replica and room_of(preferred, replica, entry.paid) > 0 and left or 0
end

-- --- runs ---------------------------------------------------------------------------------------

-- Puts a run that does not wait yet into the queue. Returns whose ticket it is; '': anybody's.
--   how  'back', 'front', or 'rebuilt': nobody publishes a ticket for it
--   but  whose ticket it is not: the one that has just given it back
-- A ticket that is one replica's is room there which others do not get. So only a run that may be
-- served at once has one: not what waits behind others of its user, nor for their end.
local function add(run, packed, how, now, but)
  local entry, is_front = read_entry(packed), how == 'front'
  local place = counted('', is_front)
  local preferred, ticket_of = '', ''
  if not is_front and entry.conversation ~= '' then
    preferred = replica_for(entry.conversation, now)
  end
  local is_next = is_front or count(users, entry.user) == 0
  local is_below = entry.class == CHORES or count(busy, 'u:' .. entry.user) < entry.cap
  if how ~= 'rebuilt' and is_next and is_below then
    ticket_of = replica_with_room(entry, preferred, but, now)
  end
  if ticket_of ~= '' then call('HINCRBY', busy, 'w:' .. ticket_of, 1) end
  call('HSET', entries, run, packed .. '|' .. place .. '|' .. whole(now) .. '|' .. preferred .. '|' ..
    ticket_of)
  call('ZADD', jobs, 0, entry.class .. '|' .. entry.user .. '|' .. place .. '|' .. run)
  call('HINCRBY', users, entry.user, 1)
  local class = class_of(entry.class)
  if entry.class ~= CHORES then class.weight, class.paid = entry.weight, entry.paid end
  class.depth, class.cost = class.depth + 1, class.cost + entry.cost
  arrange(entry.class, entry.user, is_front and 'front' or 'keep', entry.cap)
  return ticket_of
end

-- Takes a waiting run out; its user's standing is the caller's.
local function take_out(run, entry)
  call('HDEL', entries, run)
  call('ZREM', jobs, entry.class .. '|' .. entry.user .. '|' .. entry.place .. '|' .. run)
  lower(users, entry.user)
  if entry.ticket_of ~= '' then lower(busy, 'w:' .. entry.ticket_of) end
  local class = class_of(entry.class)
  class.depth, class.cost = class.depth - 1, class.cost - entry.cost
end

local function read_record(text)
  if not text then return nil end
  local f = split(text)
  return {
    user = f[1], class = f[2], cost = tonumber(f[3]), epoch = tonumber(f[4]), replica = f[5],
    popped_ms = tonumber(f[6]),
  }
end

local function record(run, entry, epoch, replica, now)
  call('HSET', running, run, entry.user .. '|' .. entry.class .. '|' .. whole(entry.cost) .. '|' ..
    whole(epoch) .. '|' .. replica .. '|' .. whole(now))
  call('HINCRBY', busy, 'r:' .. replica, 1)
  call('HINCRBY', busy, 'c:' .. entry.class, 1)
  if entry.class ~= CHORES then call('HINCRBY', busy, 'u:' .. entry.user, 1) end
end

-- Ends a record: its room is free again, its plan has paid `spent` tokens and not what was charged,
-- and its user may have another turn.
local function release(run, found, spent)
  call('HDEL', running, run)
  lower(busy, 'r:' .. found.replica)
  lower(busy, 'c:' .. found.class)
  if found.class == CHORES then return end
  lower(busy, 'u:' .. found.user)
  if classes()[found.class] and spent ~= found.cost then
    settle(class_of(found.class), found.epoch, spent - found.cost)
  end
  arrange_others(found.user)
end

-- --- predictions --------------------------------------------------------------------------------

-- The replicas heard of lately: how many, their slots, and the room there is now for paid or free.
local function pool_room(paid, now)
  local known, slots, room = 0, 0, 0
  local all = call('HGETALL', replicas_at)
  for i = 1, #all, 2 do
    local replica = read_replica(all[i + 1], now)
    if replica then
      known, slots = known + 1, slots + replica.slots
      room = room + room_of(all[i], replica, paid)
    end
  end
  return known, slots, room
end

-- Runs of a class that go before a user's next one: `own` of theirs wait already, the user is the
-- `rank`th (from 0) of its rotation.
local function before_in_class(class, rank, own)
  return math.min(class.depth, rank + own * math.max(1, class.ready))
end

-- What a run of this class uses of what it is charged: answers are shorter than their room, and the
-- plans with the largest rooms use the smallest share of them.
local function used_share(class)
  local means =
    call('HMGET', tags, 'charged:' .. class.name, 'spent:' .. class.name, 'charged', 'spent')
  for i = 1, 3, 2 do
    local charged, spent = tonumber(means[i] or 0), tonumber(means[i + 1] or 0)
    if charged > 0 and spent > 0 then return spent / charged end
  end
  return 1
end

-- Runs that will be served before a run of this class which has `own_runs` of it before itself and
-- whose class stands at `tag`, and the tokens that they will use.
local function ahead(class, tag, own_runs)
  local mean = class.depth > 0 and class.cost / class.depth or 0
  local runs, tokens = own_runs, own_runs * mean * used_share(class)
  local until_tag = tag + own_runs * mean / class.weight
  for name, other in pairs(classes()) do
    if name ~= class.name and other.depth > 0 and name ~= CHORES then
      local most = other.depth
      if class.name ~= CHORES then
        local share = (until_tag - other.tag) * other.weight
        local is_first = share > 0 or (share == 0 and outranks(other, class))
        local each = other.cost / other.depth
        if other.ready == 0 or not is_first then
          most = 0
        elseif each > 0 then
          most = math.min(most, math.max(1, math.ceil(share / each)))
        end
      end
      if most > 0 then
        runs = runs + most
        tokens = tokens + most * (other.cost / other.depth) * used_share(other)
      end
    end
  end
  return runs, tokens
end

-- The slots that this class' queue has: those of plans whose people never wait go back to them. Not
-- fewer than its share by weight, which it has whoever comes.
local function slots_for(class, slots)
  local left, weights = slots, class.weight
  for name, other in pairs(classes()) do
    local at_work = count(busy, 'c:' .. name)
    if name ~= class.name and name ~= CHORES and other.ready == 0 and at_work > 0 then
      left, weights = left - at_work, weights + other.weight
    end
  end
  return math.max(left, slots * class.weight / weights)
end

-- Milliseconds until a run begins that has so many before it; nil where nobody knows.
local function wait_ms(class, runs, tokens, slots, room)
  if runs < room then return 0 end
  local means = call('HMGET', tags, 'spent', 'took_ms')
  local spent, took_ms = tonumber(means[1] or 0), tonumber(means[2] or 0)
  if slots == 0 or spent <= 0 or took_ms <= 0 then return nil end
  local wait = tokens * took_ms / spent / slots_for(class, slots)
  -- Until the first of them ends.
  if room == 0 then wait = wait + took_ms / (slots + 1) end
  return math.ceil(wait)
end
