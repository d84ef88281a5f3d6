-- figures(now_ms, plan, weight, paid, plan, weight, paid, ...) -> {pool, classes, replicas}
--   How a pool stands, for people who look on; changes nothing.
--     pool      {built, paused, chores paused, depth, mean tokens a second of one slot (text; empty:
--               not measured)}
--     classes   name, weight, paid, depth, wait_ms, name, ...: the plans asked for and those that the
--               queue knows, chores ("~") too. wait_ms is what one more user of that plan would wait;
--               -1: nobody knows
--     replicas  name, slots, paid burst, at work, age_ms, name, ...: those heard of lately. At work is
--               the queue's own count, age how long ago it told of itself
-- KEYS as in shared.lua
-- ARGV 1 now_ms or empty  then threes: a plan, its weight, paid (0 or 1)
local now = time_ms(ARGV[1])
local is_paused = call('HGET', tags, 'paused') == '1'
local means = call('HMGET', tags, 'spent', 'took_ms')
local speed = ''
if means[1] and means[2] and tonumber(means[2]) > 0 then
  speed = string.format('%.17g', tonumber(means[1]) * 1000 / tonumber(means[2]))
end

for i = 2, #ARGV, 3 do
  -- Those that nobody has sent anything of yet; they are not saved.
  if not classes()[ARGV[i]] then
    loaded[ARGV[i]] = {
      name = ARGV[i], tag = 0, epoch = 0, weight = tonumber(ARGV[i + 1]), paid = ARGV[i + 2] == '1',
      slack = 0, depth = 0, cost = 0, ready = 0,
    }
  end
end

local room = {}
local function wait_of(class)
  if is_paused then return -1 end
  if class.name == CHORES and call('HGET', tags, 'chores_paused') == '1' then return -1 end
  if not room[class.paid] then room[class.paid] = {pool_room(class.paid, now)} end
  local _, slots, free = unpack(room[class.paid])
  local tag = class.tag
  if class.ready == 0 then tag = math.max(tag, standing()) end
  local runs, tokens = ahead(class, tag, before_in_class(class, class.ready, 0))
  return wait_ms(class, runs, tokens, slots, free) or -1
end

local found = {}
for _, class in pairs(classes()) do found[#found + 1] = class end
table.sort(found, function(a, b) return a.name < b.name end)
local classes_told = {}
for _, class in ipairs(found) do
  local one = {class.name, math.floor(class.weight), class.paid and 1 or 0, class.depth, wait_of(class)}
  for _, value in ipairs(one) do classes_told[#classes_told + 1] = value end
end

local replicas_told = {}
local all = call('HGETALL', replicas_at)
for i = 1, #all, 2 do
  local replica = read_replica(all[i + 1], now)
  if replica then
    local seen_ms = tonumber(string.match(all[i + 1], '(%d+)$'))
    local one = {all[i], replica.slots, replica.burst, count(busy, 'r:' .. all[i]), now - seen_ms}
    for _, value in ipairs(one) do replicas_told[#replicas_told + 1] = value end
  end
end

local chores_paused = call('HGET', tags, 'chores_paused') == '1'
return {
  {call('EXISTS', built), is_paused and 1 or 0, chores_paused and 1 or 0, call('ZCARD', jobs), speed},
  classes_told, replicas_told,
}
