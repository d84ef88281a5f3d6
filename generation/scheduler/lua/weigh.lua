-- weigh(plan, weight) -> 1 where the queue knows the plan, else 0
--   Gives a plan another share, for those of it that wait too. What was charged before stays as it was.
--   A plan that the queue does not know has its weight from the first run of it.
-- KEYS as in shared.lua
-- ARGV 1 plan  2 weight
if not classes()[ARGV[1]] or ARGV[1] == CHORES then return 0 end
class_of(ARGV[1]).weight = tonumber(ARGV[2])
save_classes()
return 1
