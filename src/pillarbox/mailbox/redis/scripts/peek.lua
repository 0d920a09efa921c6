#!lua flags=no-writes
-- Return messages in one state, in order, as of now. Read-only.
--
-- ARGV: names (2); ready, scheduled, in_flight, or leaving (dead letters that are not in their
-- dead-letter queue yet); count. Returns ids (each with its score), packed messages, states, and
-- the queues whose dead-letter queue this is.
--@include queue
--@include now
--@include state
--@include line
--@include journal
--@include fate
--@include elapsed
--@include noisy
--@include fair
local wanted, count = ARGV[3], tonumber(ARGV[4])
local page = math.max(count, 1000)  -- what came due last may have the highest priority
local found, ids, bodies, states = {}, {}, {}, {}

local function add(q, id, at, state)
  if #ids == count then return end
  found[#found + 1], found[#found + 2] = id, at
  ids[#ids + 1] = id
  bodies[#ids] = call("HGET", q.bodies, id)
  states[#ids] = state and pack(state) or call("HGET", q.states, id)
end

local function add_group(group)
  for _, entry in ipairs(of_group(own, group, count - #ids)) do add(own, id_in(entry), "0") end
end

-- Return where a returned message would be: at the end of its priority, or at its old place.
local places = 0
local function place_for(each)
  local s = each.state
  if each.returned and own.original then return score(s.priority, place_of(each.id, s)) end
  places = places + 1
  local last = tonumber(call("HGET", own.queue, "seq") or 0) or 0
  return score(s.priority, MIDDLE + last + places)
end

local function first_in_line()
  local items, line = {}, call("ZRANGE", own.line, 0, count - 1, "WITHSCORES")
  for i = 1, #line, 2 do items[#items + 1] = {id = line[i], score = tonumber(line[i + 1])} end
  return items
end

-- Insert before later places. The line of a fair queue is not sorted: noisy tenants come last.
local function insert(items, item)
  local at = 1
  while items[at] and items[at].score <= item.score do at = at + 1 end
  table.insert(items, at, item)
end

-- Return the line, including messages that are due; and separately, those that join a group.
local function in_line()
  local items, late, put = {}, {}, own.fair and insert or table.insert
  for _, each in ipairs(own.fair and in_turn(own, count) or first_in_line()) do
    each.q, each.at = own, string.format("%.0f", each.score)
    items[#items + 1] = each
  end
  local function joins(q, each)
    local grouped = each.state.group ~= "" and not own.fair
    local item = {q = q, id = each.id, at = "0", state = each.state}
    if grouped then
      late[#late + 1] = item
    else
      item.score = place_for(each)
      put(items, item)
    end
  end
  for _, each in ipairs(elapsed(own, 0, page)) do
    if not each.died then joins(own, each) end
  end
  if other and other.dead == own.name then
    for _, each in ipairs(elapsed(other, 0, page)) do
      if each.died then joins(other, each) end
    end
  end
  if not own.fair then table.sort(items, function(a, b) return a.score < b.score end) end
  return items, late
end

local function add_ready()
  local items, late = in_line()
  for _, each in ipairs(items) do
    if each.state or each.tenant or string.byte(each.id) ~= 103 then
      add(each.q, each.id, each.at, each.state)
    else
      add_group(string.sub(each.id, 2))
    end
  end
  local from = "-"  -- then messages that wait in held groups, group by group
  while #ids < count and not own.fair do
    local entry = call("ZRANGEBYLEX", own.grouped, from, "+", "LIMIT", 0, 1)[1]
    if not entry then break end
    local group = string.match(entry, "^[^%z]*")
    if not call("ZSCORE", own.line, "g" .. group) then add_group(group) end
    from = "(" .. group .. "\1"
  end
  for _, each in ipairs(late) do add(each.q, each.id, each.at, each.state) end
end

if wanted == "ready" then
  add_ready()
elseif wanted == "leaving" then
  for _, each in ipairs(elapsed(own, 0, page)) do
    if each.died then add(own, each.id, "0", each.state) end
  end
else
  local key = wanted == "scheduled" and own.later or own.leases
  local from = string.format("(%.0f", now)
  for _, id in ipairs(call("ZRANGEBYSCORE", key, from, "+inf", "LIMIT", 0, count)) do
    add(own, id, "0")
  end
end
return {found, bodies, states, own.sources}
