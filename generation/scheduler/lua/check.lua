-- check() -> 1 where the queue may be trusted, else 0
--   A marker of another server (a failover, a restored snapshot) is worth as little as none: the
--   queue may be older than PostgreSQL knows. So is one of another version of these scripts. It is
--   taken away, so that enqueue and pop refuse too.
-- KEYS as in shared.lua
local marker = call('GET', built)
if not marker then return 0 end
if marker == own_marker() then return 1 end
call('DEL', built)
return 0
