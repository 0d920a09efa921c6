#!lua flags=allow-oom
-- Delete a queue with all that it holds. Whoever is parked on it wakes up and finds it gone.
--
-- ARGV: names (2). Answer: 1; 0 if there was none.
--@include queue
local TOKENS = 128
local WAKE_MS = "1000"
local there, parked = call("EXISTS", own.queue), call("EXISTS", own.parked)
for i = 1, 13 do call("UNLINK", KEYS[i]) end
if parked == 1 then
  for _ = 1, TOKENS do call("RPUSH", own.wake, "") end
  call("PEXPIRE", own.wake, WAKE_MS)
end
return there
