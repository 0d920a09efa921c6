#!lua flags=allow-oom
-- Open a queue: store new settings and return all settings. Without new settings, read-only.
--
-- ARGV: names (2); redelivery; capacity; journal; maximum deliveries; its dead-letter queue; a
-- queue whose dead-letter queue this is; fair; 1 if a dead-letter queue may have one of its own.
-- Each may be empty. Returns redelivery, capacity, journal, max, dead, sources.
--@include queue
local source, dead = ARGV[8], ARGV[7]
local sources = own.sources
if source ~= "" then
  if ARGV[10] ~= "" and call("EXISTS", own.queue) == 0 then
    return redis.error_reply("STALE the queue was deleted")
  end
  if own.dead and ARGV[10] == "" then return redis.error_reply("MORTAL it has dead letters of its own") end
  if not string.find("," .. (sources or "") .. ",", "," .. source .. ",", 1, true) then
    call("HSET", own.queue, "sources", sources and sources .. "," .. source or source)
  end
end
if dead ~= "" then
  if sources then return redis.error_reply("MORTAL it is a queue of dead letters") end
  call("HSET", own.queue, "max", ARGV[6], "dead", dead)
end
if ARGV[3] ~= "" and call("HSETNX", own.queue, "redelivery", ARGV[3]) == 1 then
  if ARGV[4] ~= "" then call("HSET", own.queue, "capacity", ARGV[4]) end
  if ARGV[9] ~= "" then call("HSET", own.queue, "fair", ARGV[9]) end
end
if ARGV[5] ~= "" then call("HSET", own.queue, "journal", ARGV[5]) end
return call("HMGET", own.queue, "redelivery", "capacity", "journal", "max", "dead", "sources")
