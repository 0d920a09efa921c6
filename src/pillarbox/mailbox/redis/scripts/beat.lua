#!lua flags=allow-oom
-- Record a broker's heartbeat, and return all live brokers.
--
-- KEYS after the queue's: hash of brokers, id -> expiry, last heartbeat, and report.
-- ARGV: names (2); id; seconds until the heartbeat expires (0: the broker stops); report.
-- Returns id, last heartbeat (microseconds) and report of each broker.
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
