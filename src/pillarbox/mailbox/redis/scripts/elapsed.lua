-- Include: the delays and leases that ended since the last write, computed without applying them.

-- Return messages whose delay or lease has ended, in the order it ended, one page of each kind: id,
-- the new state, whether the message was dead-lettered.
local function elapsed(q, first, count)
  local to = string.format("%.0f", now)
  local due = call("ZRANGEBYSCORE", q.later, "-inf", to, "WITHSCORES", "LIMIT", first, count)
  local over = call("ZRANGEBYSCORE", q.leases, "-inf", to, "WITHSCORES", "LIMIT", first, count)
  local found = {}
  for i = 1, #due, 2 do
    local s = load(q, due[i])
    found[#found + 1] = {id = due[i], at = tonumber(due[i + 1]), state = s, died = false,
                         returned = s.deliveries > 0}
  end
  for i = 1, #over, 2 do
    local s, at = load(q, over[i]), tonumber(over[i + 1])
    local died = is_last(q, s)
    if died or q.max > 0 or q.on_receive then note(s, at, "expired") end
    s.deliveries = s.deliveries + 1
    end_lease(s)
    if died then
      s.death, s.before = {q.name, reason_for("expired", s.deliveries), at}, s.deliveries
    end
    found[#found + 1] = {id = over[i], at = at, state = s, died = died, returned = not died}
  end
  table.sort(found, function(a, b) return a.at < b.at or (a.at == b.at and a.id < b.id) end)
  return found
end

-- Return the number of delays and leases of a queue that have ended.
local function count_elapsed(q)
  local to = string.format("%.0f", now)
  return call("ZCOUNT", q.later, "-inf", to), call("ZCOUNT", q.leases, "-inf", to)
end
