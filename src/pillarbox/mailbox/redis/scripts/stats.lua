#!lua flags=allow-oom
-- What the queue holds.
--
-- ARGV: names (2).
-- Answer: the time, when something happens next, how many are ready, scheduled, in flight and
-- dead (less than zero: ask the queue of that name), time of the oldest first in line (0: none),
-- how many wait to be carried elsewhere, and the queues whose dead letters come here.
--@include queue
--@include now
--@include state
--@include line
--@include journal
--@include fate
--@include lease
settle_all()
wake_all()
local GROUPS_SEEN_MAX = 256
local oldest = math.huge

local function see(id)
  oldest = math.min(oldest, tonumber(string.sub(id or "", 1, 14), 16) or math.huge)
end

local from = "-inf"  -- the first of each priority
for _ = 0, 255 do
  local head = call("ZRANGEBYSCORE", own.line, from, "+inf", "WITHSCORES", "LIMIT", 0, 1)
  if not head[1] then break end
  if string.byte(head[1]) ~= 103 then see(head[1]) end
  from = (math.floor(head[2] / SPAN) + 1) * SPAN
end
from = "-"  -- and of each group
for _ = 1, GROUPS_SEEN_MAX do
  local entry = call("ZRANGEBYLEX", own.grouped, from, "+", "LIMIT", 0, 1)[1]
  if not entry then break end
  see(id_in(entry))
  from = "(" .. string.match(entry, "^[^%z]*") .. "\1"
end
local scheduled, in_flight = call("ZCARD", own.later), call("ZCARD", own.leases)
local ready = call("HLEN", own.bodies) - scheduled - in_flight
local dead = 0
if own.dead then dead = other and call("HLEN", other.bodies) or -1 end
return {now, next_at(), ready, scheduled, in_flight, dead, oldest == math.huge and 0 or oldest,
        on_the_way(), own.sources}
