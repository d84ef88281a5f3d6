-- outlook(user, plan, weight, paid, now_ms) -> {built, paused, depth, waiting of this user, free room,
--     slots, replicas, runs before, tokens before, tokens per second (text; empty: not measured),
--     wait_ms (-1: nobody knows)}
--   What a run would meet that is not queued yet. It also writes a little: a Redis that takes no
--   writes (its memory is full, a replica) refuses here, before anything is saved.
-- KEYS as in shared.lua
-- ARGV 1 user  2 plan  3 weight  4 paid (0 or 1)  5 now_ms or empty
call('HINCRBY', tags, 'asked', 1)
local user, now, paid = ARGV[1], time_ms(ARGV[5]), ARGV[4] == '1'
local known = classes()[ARGV[2]]
local class = known
  or {name = ARGV[2], tag = 0, slack = 0, weight = tonumber(ARGV[3]), paid = paid, depth = 0, cost = 0, ready = 0}
local line = class.name .. '|' .. user
local own = call('ZLEXCOUNT', jobs, '[' .. line .. '|', '(' .. line .. '}')
local turn = string.match(call('HGET', lines, line) or '', '^([^|]*)|')
local rank = class.ready
if turn and turn ~= PARKED then
  rank = call('ZLEXCOUNT', turns, '[' .. class.name .. '|', '(' .. class.name .. '|' .. turn .. '|' .. user)
end
local tag = class.tag
if class.ready == 0 then tag = math.max(tag, standing()) end
local runs, tokens = ahead(class, tag, before_in_class(class, rank, own))
local replicas, slots, room = pool_room(paid, now)
local is_paused = call('HGET', tags, 'paused') == '1'
local wait = not is_paused and wait_ms(class, runs, tokens, slots, room) or nil
local means = call('HMGET', tags, 'spent', 'took_ms')
local speed = ''
if means[1] and means[2] and tonumber(means[2]) > 0 then
  speed = string.format('%.17g', tonumber(means[1]) * 1000 / tonumber(means[2]) * slots)
end
return {
  call('EXISTS', built), is_paused and 1 or 0, call('ZCARD', jobs), count(users, user), room, slots,
  replicas, runs, math.ceil(tokens), speed, wait or -1,
}
