-- settle(clock, run, answered, tokens) -> 1, or 0 where this run holds nothing (any more)
--   Charges the true cost in place of what was held. Without an answer nothing is charged but the
--   request: the message leaves the window, the tokens go back. A true cost above what was held leaves
--   more in the bucket than it may hold.
-- KEYS 1 messages  2 open  3 twins  4 levels                           (see shared.lua)
-- ARGV 1 clock, '' for Redis'  2 run  3 "1": there is an answer  4 prompt and output tokens
local known = redis.call('HGET', KEYS[2], ARGV[2])
if not known then return 0 end
local answered = ARGV[3] == '1'
local tokens = answered and tonumber(ARGV[4]) or 0
close(KEYS[1], KEYS[2], KEYS[3], KEYS[4], clock(ARGV[1]), ARGV[2], unpacked(known), tokens, true, answered)
keep(KEYS[1], KEYS[2], KEYS[3], KEYS[4])
return 1
