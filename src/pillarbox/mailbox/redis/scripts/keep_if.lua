#!lua flags=allow-oom
-- Compare and set a value shared by all brokers.
--
-- KEYS after the queue's: the value. ARGV: names (2); expected value, empty if none; new value.
-- Returns 1, also for a repeated call whose response was lost; 0 if the value has changed.
--@include queue
local kept = KEYS[extra_keys + 1]
local now = call("GET", kept) or ""
if now ~= ARGV[3] then return now == ARGV[4] and 1 or 0 end
call("SET", kept, ARGV[4])
return 1
