#!lua flags=allow-oom
-- Pause or resume delivery from this queue.
--
-- ARGV: names (2); 1 to pause, 0 to resume. Returns 1; 0 if the queue does not exist.
--@include queue
local TOKENS = 128
if call("EXISTS", own.queue) == 0 then return 0 end
if ARGV[3] == "1" then
  call("HSET", own.queue, "paused", "1")
else
  call("HDEL", own.queue, "paused")
  if call("EXISTS", own.parked) == 1 then
    for _ = 1, math.min(TOKENS, call("ZCARD", own.line)) do call("RPUSH", own.wake, "") end
  end
end
return 1
