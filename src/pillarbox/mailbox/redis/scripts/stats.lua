#!lua flags=no-writes
-- Count the messages of the queue as of now. Read-only.
--
-- ARGV: names (2); offset of the page of expired leases to examine for dead letters. Returns the
-- time; the number of expired leases to page through; the numbers of ready (including those dead-
-- lettered), scheduled and in-flight messages; of dead ones (or the name of their queue, to be
-- queried); the send time of the oldest at the head of the line (0: none); how many of this page
-- were dead-lettered, here and in the source queue; the queues whose dead-letter queue this is.
--@include queue
--@include now
--@include state
--@include line
--@include journal
--@include fate
--@include elapsed
local GROUPS_SEEN_MAX = 256
local PAGE = 1000
local first = tonumber(ARGV[3])
local oldest = math.huge

local function see(id)
  oldest = math.min(oldest, tonumber(string.sub(id or "", 1, 14), 16) or math.huge)
end

-- Count the dead-lettered; they, or the others, are in line here.
local function count_died(q, ours)
  local died = 0
  for i, each in ipairs(elapsed(q, first, q.max > 0 and PAGE or GROUPS_SEEN_MAX)) do
    if each.died then died = died + 1 end
    if first == 0 and i <= GROUPS_SEEN_MAX and each.died == ours then see(each.id) end
  end
  return died
end

local from = "-inf"  -- the first of each priority
for _ = 0, 255 do
  local head = call("ZRANGEBYSCORE", own.line, from, "+inf", "WITHSCORES", "LIMIT", 0, 1)
  if not head[1] then break end
  if string.byte(head[1]) ~= 103 then
    see(head[1])
  elseif own.fair then
    see(id_in(of_group(own, string.sub(head[1], 2), 1)[1] or ""))
  end
  from = (math.floor(head[2] / SPAN) + 1) * SPAN
end
from = "-"  -- and of each group
for _ = 1, own.fair and 0 or GROUPS_SEEN_MAX do
  local entry = call("ZRANGEBYLEX", own.grouped, from, "+", "LIMIT", 0, 1)[1]
  if not entry then break end
  see(id_in(entry))
  from = "(" .. string.match(entry, "^[^%z]*") .. "\1"
end
local due, over = count_elapsed(own)
local scheduled, in_flight = call("ZCARD", own.later) - due, call("ZCARD", own.leases) - over
local ready = call("HLEN", own.bodies) - scheduled - in_flight
local died = (due > 0 or over > 0) and count_died(own, false) or 0
local to_tell, came = own.max > 0 and over or 0, 0
if other and other.dead == own.name then
  local _, theirs = count_elapsed(other)
  if theirs > 0 then came = count_died(other, true) end
  to_tell = math.max(to_tell, theirs)
end
local dead = 0
if own.dead then
  dead = other and other.name == own.dead and call("HLEN", other.bodies) or own.dead
end
return {now, to_tell, ready, scheduled, in_flight, dead, oldest == math.huge and 0 or oldest,
        died, came, own.sources}
