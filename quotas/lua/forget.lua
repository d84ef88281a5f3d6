-- forget(user, score) -> 1, or 0 where the user was marked since
--   Takes a user who holds nothing out of the index.
-- KEYS 1 index                                                         (see mark.lua)
-- ARGV 1 user  2 score, as `due` gave it
if redis.call('ZSCORE', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
return redis.call('ZREM', KEYS[1], ARGV[1])
