#!lua flags=allow-oom
-- A broker tells that it is alive, and learns who else is.
--
-- KEYS after the queue's: hash of brokers, id -> until when it counts as alive, when it was seen, and
-- what it says of itself.
-- ARGV: names (2); id; for how many seconds it counts as alive (0: it stops); what it says.
-- Answer: id, when it was seen (microseconds) and what it says, of each.
--@include queue
--@include now
local brokers, seconds = KEYS[extra_keys + 1], tonumber(ARGV[4])
if seconds > 0 then
  local times = string.format("%.0f %.0f ", now + seconds * 1000000, now)
  call("HSET", brokers, ARGV[3], times .. ARGV[5])
else
  call("HDEL", brokers, ARGV[3])
end
local found, all = {}, call("HGETALL", brokers)
for i = 1, #all, 2 do
  local until_, seen, said = string.match(all[i + 1], "^(%d+) (%d+) (.*)$")
  if tonumber(until_) > now then
    found[#found + 1], found[#found + 2], found[#found + 3] = all[i], seen, said
  else
    call("HDEL", brokers, all[i])
  end
end
return found
