-- check() -> 1 where the queue may be trusted, else 0
--   A marker of another server (a failover, a restored snapshot) is worth as little as none: the
--   queue may be older than PostgreSQL knows. It is taken away, so that enqueue and pop refuse too.
-- KEYS 1 built                                  (see enqueue.lua)
local marker = redis.call('GET', KEYS[1])
if not marker then return 0 end
if marker == string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') then return 1 end
redis.call('DEL', KEYS[1])
return 0
