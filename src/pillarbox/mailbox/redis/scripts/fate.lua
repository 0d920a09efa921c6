-- Include: what happens to a message when its delivery fails or its delay ends.
local ATTEMPTS_KEPT_MAX = 100
local SETTLED_MAX = "100"  -- of each kind per script; a string, because numbers cost more

local function note(s, at, outcome)
  local attempts = s.attempts or {}
  attempts[#attempts + 1] = {s.leased_at, at, outcome}
  if #attempts > ATTEMPTS_KEPT_MAX then table.remove(attempts, 1) end
  s.attempts = attempts
end

local function end_lease(s)
  s.leased_at, s.deadline, s.token = 0, 0, NO_TOKEN
end

-- Move to another queue: directly if the script has its keys, otherwise through the outbox.
local function move(q, id, s, to)
  local value = call("HGET", q.bodies, id)
  call("HDEL", q.bodies, id)
  call("HDEL", q.states, id)
  if not value then return end
  local target = other and (to == other.name and other or to == own.name and own)
  if target then
    s.place = next_place(target)
    call("HSET", target.bodies, id, value)
    save(target, id, s)
    join(target, id, s)
    return
  end
  -- A ticket for this move: a queue that was deleted and created again counts from one.
  local ticket = q.name .. "/" .. id .. "/" .. call("HINCRBY", q.queue, "seq", 1)
  local sizes = struct.pack(">I2I2I4", #to, #id, #value)
  call("HSET", q.outbox, ticket, sizes .. to .. id .. value .. pack(s))
end

local function die(q, id, s, at, outcome, reason)
  note(s, at, outcome)
  s.deliveries = s.deliveries + 1
  end_lease(s)
  s.death, s.before = {q.name, reason, at}, s.deliveries
  unhold(q, id, s)
  move(q, id, s, q.dead)
  journal(q, "died", id, "outcome", outcome, "reason", reason, "to", q.dead)
end

-- Put back in line: at its place in its group, at its own place, at the front, or at the end.
local function give_back(q, id, s, to_front)
  if s.group == "" and not q.original then
    s.place = to_front and MIDDLE + call("HINCRBY", q.queue, "front", -1) or next_place(q)
  end
  save(q, id, s)
  join(q, id, s)
end

-- Dead-letter a message at the head of the line with no deliveries left.
local function die_in_line(q, id, s)
  s.death, s.before = {q.name, "delivered " .. s.deliveries .. " times", now}, s.deliveries
  unhold(q, id, s)
  move(q, id, s, q.dead)
  journal(q, "died", id, "outcome", "received", "reason", s.death[2], "to", q.dead)
end

local function returned(q, id, s, at, outcome, due)
  if q.max > 0 or q.on_receive then note(s, at, outcome) end
  s.deliveries = s.deliveries + 1
  end_lease(s)
  if due > 0 then
    save(q, id, s)
    call("ZADD", q.later, due, id)  -- its group stays held until then
  else
    give_back(q, id, s)
    unhold(q, id, s)
  end
  journal(q, "returned", id, "outcome", outcome, "due", string.format("%.0f", due))
end

-- Return whether the failed delivery was the message's last.
local function is_last(q, s)
  return q.max > 0 and failed_here(s) + 1 >= q.max and q.dead ~= false and not q.on_receive
end

local function reason_for(outcome, number)
  return outcome .. " after " .. number .. " deliveries"
end

-- Handle a failed delivery: redeliver or dead-letter. The lease must already be out of q.leases.
local function fail(q, id, s, at, outcome, due)
  if is_last(q, s) then
    die(q, id, s, at, outcome, reason_for(outcome, s.deliveries + 1))
  else
    returned(q, id, s, at, outcome, due)
  end
end

local function came_due(q, id, at)
  call("ZREM", q.later, id)
  local s = load(q, id)
  if s.deliveries > 0 then  -- it was returned with a delay
    give_back(q, id, s)
    unhold(q, id, s)
  else
    s.place = next_place(q)
    save(q, id, s)
    join(q, id, s)
  end
  journal(q, "came_due", id)
end

local function settle(q)
  local to = string.format("%.0f", now)
  local due = call("ZRANGEBYSCORE", q.later, "-inf", to, "WITHSCORES", "LIMIT", "0", SETTLED_MAX)
  local over = call("ZRANGEBYSCORE", q.leases, "-inf", to, "WITHSCORES", "LIMIT", "0", SETTLED_MAX)
  local i, j = 1, 1
  while due[i] or over[j] do
    local due_at, over_at = tonumber(due[i + 1]) or math.huge, tonumber(over[j + 1]) or math.huge
    -- Of messages due at the same time, the older first: ids sort by age.
    if due_at < over_at or (due_at == over_at and due[i] < over[j]) then
      came_due(q, due[i], due_at)
      i = i + 2
    else
      local id = over[j]
      call("ZREM", q.leases, id)
      fail(q, id, load(q, id), over_at, "expired", 0)
      j = j + 2
    end
  end
end

-- Settle what is due, up to a limit; next_at() tells the caller whether there is more.
local function settle_all()
  if other and other.dead == own.name then settle(other) end
  settle(own)
end
