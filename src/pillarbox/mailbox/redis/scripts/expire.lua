#!lua flags=allow-oom
-- Set the queue to expire, unless this is called again in time.
--
-- ARGV: names (2); seconds. Returns 1.
--@include queue
for i = 1, 13 do call("EXPIRE", KEYS[i], ARGV[3]) end
return 1
