#!lua flags=allow-oom
-- Look at messages in one state, in order; nothing is leased.
--
-- ARGV: names (2); ready, scheduled or in_flight; how many.
-- Answer: the time, when something happens next, ids (each with its score), packed messages,
-- states, and the queues whose dead letters come here.
--@include queue
--@include now
--@include state
--@include line
--@include journal
--@include fate
settle_all()
wake_all()
local count = tonumber(ARGV[4])
local found, ids = {}, {}

local function add(id, at)
  found[#found + 1], found[#found + 2] = id, at
  ids[#ids + 1] = id
end

local function add_group(group)
  for _, entry in ipairs(of_group(own, group, count - #ids)) do add(id_in(entry), "0") end
end

if ARGV[3] == "ready" then
  local line = call("ZRANGE", own.line, 0, count - 1, "WITHSCORES")
  for i = 1, #line, 2 do
    if string.byte(line[i]) == 103 then
      if #ids < count then add_group(string.sub(line[i], 2)) end
    elseif #ids < count then
      add(line[i], line[i + 1])
    end
  end
  local from = "-"  -- then what waits behind a held group, group by group
  while #ids < count do
    local entry = call("ZRANGEBYLEX", own.grouped, from, "+", "LIMIT", 0, 1)[1]
    if not entry then break end
    local group = string.match(entry, "^[^%z]*")
    if not call("ZSCORE", own.line, "g" .. group) then add_group(group) end
    from = "(" .. group .. "\1"
  end
else
  local key = ARGV[3] == "scheduled" and own.later or own.leases
  for _, id in ipairs(call("ZRANGE", key, 0, count - 1)) do add(id, "0") end
end
local bodies, states = {}, {}
if #ids > 0 then
  bodies, states = for_many("HMGET", own.bodies, ids), for_many("HMGET", own.states, ids)
end
return {now, next_at(), found, bodies, states, own.sources}
