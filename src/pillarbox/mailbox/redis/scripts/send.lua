#!lua
-- Send messages: all of them or none.
--
-- KEYS after the queues': the sender's session (string: number of its last call and its result, so
-- that a repeated call does nothing), and the key of the deduplication id (string: purges, expiry,
-- id of the original), if one was given.
-- ARGV: names (2); number of this call; end of the ids; priority; delay; group; lifetime of a
-- deduplication id; then the packed messages.
-- Returns the time and first number of the new ids; "=" and the id of the original for a duplicate;
-- or the current number of messages, as a number, if the queue is full.
--@include queue
--@include now
--@include state
--@include line
--@include journal
local session, twin = KEYS[extra_keys + 1], KEYS[extra_keys + 2]
local number, ending, group = ARGV[3] .. " ", ARGV[4], ARGV[7]
local priority, delay, count = tonumber(ARGV[5]), tonumber(ARGV[6]), #ARGV - 8
local SESSION_MS = 900000

local function settle_first()
--@include fate
  settle_all()
end

if any_due() then settle_first() end
local first = call("HINCRBY", own.queue, "seq", count) - count + 1
local stamp = string.format("%014x", now)
local answer = stamp .. " " .. first
local before = call("SET", session, number .. answer, "PX", SESSION_MS, "GET")
if before and string.sub(before, 1, #number) == number then
  call("SET", session, before, "PX", SESSION_MS)
  return string.sub(before, #number + 1)
end

if twin then
  local purges = call("HGET", own.queue, "purges") or "0"
  local known = call("GET", twin)
  if known then
    local at_purge, until_, id = string.match(known, "^(%d+) (%d+) (.+)$")
    if at_purge == purges and tonumber(until_) > now then
      call("SET", session, number .. "=" .. id, "PX", SESSION_MS)
      wake_all()
      return "=" .. id
    end
  end
  local id = stamp .. "-" .. string.format("%011x", first) .. ending
  local forget = string.format(" %.0f ", now + ARGV[8])
  call("SET", twin, purges .. forget .. id, "PX", math.ceil(ARGV[8] / 1000))
end

if own.capacity and call("HLEN", own.bodies) + count > own.capacity then
  call("DEL", session)
  if twin then call("DEL", twin) end
  wake_all()
  return call("HLEN", own.bodies)
end

local plain = delay == 0 and group == ""
local due = now + delay
local sent = fresh(priority, group)
local state = not plain and pack(sent)
local base = score(priority, MIDDLE)
local bodies, places, states = {}, {}, {}
local prefix = stamp .. "-"
local of_group_too = group ~= "" and {"group", group} or {}
for i = 1, count do
  local id = prefix .. string.format("%011x", first + i - 1) .. ending
  local value = ARGV[8 + i]
  bodies[2 * i - 1], bodies[2 * i] = id, value
  if plain then
    places[2 * i - 1], places[2 * i] = base + first + i - 1, id
  else
    states[2 * i - 1], states[2 * i] = id, state
    if delay > 0 then
      places[2 * i - 1], places[2 * i] = due, id
    else
      places[2 * i - 1], places[2 * i] = 0, member(own, id, sent)
    end
  end
  if own.journals then
    local attributes, body = parts(value)
    local kind = delay > 0 and "scheduled" or "sent"
    journal(own, kind, id, "body", body, "attributes", attributes, "priority", ARGV[5],
            "due", string.format("%.0f", due), unpack(of_group_too))
  end
end
for_many("HSET", own.bodies, bodies)
if not plain then for_many("HSET", own.states, states) end
if delay > 0 then
  for_many("ZADD", own.later, places)
  arm_all(due)
elseif group ~= "" then
  for_many("ZADD", own.grouped, places)
  line_up(own, group_of(own, sent))
else
  for_many("ZADD", own.line, places)
end
if delay == 0 and (group == "" or own.fair) then own.ready = own.ready + count end
wake_all()
return answer
