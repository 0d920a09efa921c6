#!lua flags=allow-oom
-- Delete a queue and all its messages. Wake parked receivers, which find it deleted.
--
-- ARGV: names (2). Returns 1; 0 if the queue did not exist.
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
