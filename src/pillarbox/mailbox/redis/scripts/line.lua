-- Include: the line of ready messages, its order, and waking receivers.
local LOOK_AGAIN = 10000000  -- microseconds: every parked receiver polls at least this often
local TOKENS_MAX = 128

local function next_place(q)
  return MIDDLE + call("HINCRBY", q.queue, "seq", 1)
end

local function score(priority, place) return (255 - priority) * SPAN + place end

-- Places in groups are compared as strings of equal length.
local function place_text(id, s) return string.format("%012x", place_of(id, s)) end

-- Return the group of a message, "" if none; in a fair queue a tenant has one for each priority.
local function group_of(q, s)
  if s.group == "" or not q.fair then return s.group end
  return s.priority .. " " .. s.group
end

local function member(q, id, s)
  return group_of(q, s) .. "\0" .. place_text(id, s) .. "\0" .. id
end

-- Return the first messages of a group; only those before a place if one is given.
local function of_group(q, group, count, before)
  local stop = before and "\0" .. before or "\1"
  return call("ZRANGEBYLEX", q.grouped, "[" .. group .. "\0", "(" .. group .. stop, "LIMIT", "0", count)
end

local function id_in(entry) return string.match(entry, "%z([^%z]*)$") end
local function place_in(entry) return string.match(entry, "%z([^%z]*)%z") end

local function is_held(q, group) return call("HEXISTS", q.groups, group) == 1 end

-- Return the places of the messages that hold a group, with redelivery="original".
local function held_places(q, group)
  local places = q.original and call("HGET", q.groups, " " .. group) or ""
  return string.gmatch(places, string.rep("%x", 12))
end

-- Return the place before which messages can be delivered; nil if nothing is held.
local function first_held(q, group)
  local first
  for place in held_places(q, group) do
    if not first or place < first then first = place end
  end
  return first
end

local function hold_group(q, group, places)
  call("HINCRBY", q.groups, group, #places)
  if not q.original or q.fair then return end
  for place in held_places(q, group) do places[#places + 1] = place end
  call("HSET", q.groups, " " .. group, table.concat(places))
end

-- Put a tenant of a fair queue in line by its first message, whatever it holds.
local function line_up_tenant(q, group)
  local first = of_group(q, group, 1)[1]
  if first then
    local priority, place = string.match(group, "^%d+"), tonumber(place_in(first), 16)
    call("ZADD", q.line, score(priority, place), "g" .. group)
  else
    call("ZREM", q.line, "g" .. group)
  end
end

-- Put a group with something to deliver at the end of the line. Held messages block it; with
-- redelivery="original", they block only later messages of the group.
local function line_up(q, group)
  if q.fair then return line_up_tenant(q, group) end
  local name = "g" .. group
  if not q.original and is_held(q, group) then return end
  local first = of_group(q, group, 1, first_held(q, group))[1]
  if not first then
    call("ZREM", q.line, name)
  elseif not call("ZSCORE", q.line, name) then
    local s = load(q, id_in(first))
    call("ZADD", q.line, score(s.priority, next_place(q)), name)
    q.ready = q.ready + 1
  end
end

-- Release the hold of a message on its group; its state must have the place it was held with.
local function unhold(q, id, s)
  local group = group_of(q, s)
  if group == "" then return end
  if call("HINCRBY", q.groups, group, -1) <= 0 then
    call("HDEL", q.groups, group, " " .. group)
  elseif q.original and not q.fair then
    local kept, place = {}, place_text(id, s)
    for each in held_places(q, group) do
      if each ~= place then kept[#kept + 1] = each end
    end
    call("HSET", q.groups, " " .. group, table.concat(kept))
  end
  if not q.fair then line_up(q, group) end
end

-- Add to the line or to its group; the caller must save the state if there is one.
local function join(q, id, s)
  if s.group ~= "" then
    call("ZADD", q.grouped, 0, member(q, id, s))
    line_up(q, group_of(q, s))
  else
    call("ZADD", q.line, score(s.priority, place_of(id, s)), id)
  end
  if s.group == "" or q.fair then q.ready = q.ready + 1 end
end

-- Remove from the line or from its group; return whether it was there.
local function leave(q, id, s)
  if s.group == "" then return call("ZREM", q.line, id) == 1 end
  local there = call("ZREM", q.grouped, member(q, id, s)) == 1
  if there then line_up(q, group_of(q, s)) end
  return there
end

-- Wake one parked receiver for each message that joined the line.
local function wake(q)
  if q.ready == 0 or call("EXISTS", q.parked) == 0 then return end
  local more = math.min(q.ready, TOKENS_MAX - call("LLEN", q.wake))
  local tokens = {}
  for i = 1, more do tokens[i] = "" end
  if more > 0 then call("RPUSH", q.wake, unpack(tokens)) end
end

local function wake_all()
  wake(own)
  if other then wake(other) end
end

-- A timer is due at this time: if receivers are parked and none will wake by then, wake one now.
local function arm(q, at)
  if at >= now + LOOK_AGAIN then return end
  local watched = call("GET", q.parked)
  if watched and (tonumber(watched) or math.huge) > at and call("LLEN", q.wake) == 0 then
    call("RPUSH", q.wake, "")
  end
end

-- Return whether anything is due that changes the result. Usually nothing is, and the script can
-- skip settling.
local function is_due(q)
  local to = string.format("%.0f", now)
  return call("ZRANGEBYSCORE", q.later, "-inf", to, "LIMIT", "0", "1")[1]
    or call("ZRANGEBYSCORE", q.leases, "-inf", to, "LIMIT", "0", "1")[1]
end

local function any_due()
  return is_due(own) or (other and other.dead == own.name and is_due(other))
end

local function arm_all(at)
  arm(own, at)
  if other and own.dead == other.name then arm(other, at) end
end

local function first_at(key)
  return tonumber(call("ZRANGE", key, "0", "0", "WITHSCORES")[2]) or math.huge
end

-- Return when the next timer is due; 0 if there is none.
local function next_at()
  local at = math.min(first_at(own.leases), first_at(own.later))
  if other and other.dead == own.name then
    at = math.min(at, first_at(other.leases))
  end
  return at == math.huge and 0 or at
end
