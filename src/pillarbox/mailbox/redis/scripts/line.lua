-- Piece: who stands in line, in which order, and who is woken for it.
local LOOK_AGAIN = 10000000  -- microseconds: every parked receiver gets up this often by itself
local TOKENS_MAX = 128

local function next_place(q)
  return MIDDLE + call("HINCRBY", q.queue, "seq", 1)
end

local function score(priority, place) return (255 - priority) * SPAN + place end

local function member(s, id)
  return string.format("%s\0%012x\0%s", s.group, place_of(id, s), id)
end

local function of_group(q, group, count)
  return call("ZRANGEBYLEX", q.grouped, "[" .. group .. "\0", "(" .. group .. "\1", "LIMIT", "0", count)
end

local function id_in(entry) return string.match(entry, "%z([^%z]*)$") end

-- A group with something to deliver, and nothing that holds it, stands at the end of the line.
local function line_up(q, group)
  if call("HEXISTS", q.groups, group) == 1 or call("ZSCORE", q.line, "g" .. group) then return end
  local first = of_group(q, group, 1)[1]
  if not first then return end
  local s = load(q, id_in(first))
  call("ZADD", q.line, score(s.priority, next_place(q)), "g" .. group)
  q.ready = q.ready + 1
end

local function unhold(q, group)
  if group == "" then return end
  if call("HINCRBY", q.groups, group, -1) <= 0 then call("HDEL", q.groups, group) end
  line_up(q, group)
end

-- Into the line, or its group's: its state must be saved by the caller if it has one.
local function join(q, id, s)
  if s.group ~= "" then
    call("ZADD", q.grouped, 0, member(s, id))
    line_up(q, s.group)
  else
    call("ZADD", q.line, score(s.priority, place_of(id, s)), id)
    q.ready = q.ready + 1
  end
end

-- Out of the line, or its group's; whether it was there.
local function leave(q, id, s)
  if s.group == "" then return call("ZREM", q.line, id) == 1 end
  local there = call("ZREM", q.grouped, member(s, id)) == 1
  if there and not of_group(q, s.group, 1)[1] then call("ZREM", q.line, "g" .. s.group) end
  return there
end

-- Of those that are parked, wake one for each message that joined the line.
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

-- Something will happen at this time: if a receiver is parked, and none looks by then, one must.
local function arm(q, at)
  if at >= now + LOOK_AGAIN then return end
  local watched = call("GET", q.parked)
  if watched and (tonumber(watched) or math.huge) > at and call("LLEN", q.wake) == 0 then
    call("RPUSH", q.wake, "")
  end
end

-- Whether anything is due that would change what a caller finds: mostly nothing is, and then the
-- script need not know what becomes of it.
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

-- When something happens by itself; 0 if nothing does.
local function next_at()
  local at = math.min(first_at(own.leases), first_at(own.later))
  if other and other.dead == own.name then
    at = math.min(at, first_at(other.leases))
  end
  return at == math.huge and 0 or at
end
