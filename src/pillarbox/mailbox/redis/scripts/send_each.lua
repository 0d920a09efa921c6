#!lua
-- Send messages, each with its own group and deduplication id: all of them or none.
--
-- KEYS after the queues': the sender's session, then the key of each deduplication id; see send.lua.
-- ARGV: names (2); number of this call; end of the ids; priority; delay; lifetime of a
-- deduplication id; then the group and the packed message of each. Returns the ids separated by
-- spaces, for a duplicate that of the original; or the current number of messages, as a number, if
-- the queue is full.
--@include queue
--@include now
--@include state
--@include line
--@include journal
--@include fate
local session = KEYS[extra_keys + 1]
local number, ending = ARGV[3] .. " ", ARGV[4]
local priority, delay, count = tonumber(ARGV[5]), tonumber(ARGV[6]), (#ARGV - 7) / 2
local SESSION_MS = 900000

settle_all()
local before = call("GET", session)
if before and string.sub(before, 1, #number) == number then
  wake_all()
  return string.sub(before, #number + 1)
end
if own.capacity and call("HLEN", own.bodies) + count > own.capacity then
  wake_all()
  return call("HLEN", own.bodies)
end

local purges = call("HGET", own.queue, "purges") or "0"
local stamp = string.format("%014x", now)
local forget = string.format(" %.0f ", now + ARGV[7])
local due = now + delay

local function first_with(twin)
  local known = call("GET", twin)
  if not known then return end
  local at_purge, until_, id = string.match(known, "^(%d+) (%d+) (.+)$")
  return at_purge == purges and tonumber(until_) > now and id
end

local function put(id, group, value)
  local s = fresh(priority, group)
  call("HSET", own.bodies, id, value)
  save(own, id, s)
  if delay > 0 then
    call("ZADD", own.later, due, id)
  else
    join(own, id, s)
  end
  if own.journals then
    local attributes, body = parts(value)
    local kind = delay > 0 and "scheduled" or "sent"
    journal(own, kind, id, "body", body, "attributes", attributes, "priority", ARGV[5],
            "due", string.format("%.0f", due), "group", group)
  end
end

local ids = {}
for i = 1, count do
  local twin = KEYS[extra_keys + 1 + i]
  ids[i] = first_with(twin)
  if not ids[i] then
    local place = string.format("%011x", call("HINCRBY", own.queue, "seq", 1))
    ids[i] = stamp .. "-" .. place .. ending
    call("SET", twin, purges .. forget .. ids[i], "PX", math.ceil(ARGV[7] / 1000))
    put(ids[i], ARGV[6 + 2 * i], ARGV[7 + 2 * i])
  end
end
if delay > 0 then arm_all(due) end
wake_all()
local answer = table.concat(ids, " ")
call("SET", session, number .. answer, "PX", SESSION_MS)
return answer
