-- Include: fair queues. A tenant with a large share of the messages in flight waits behind the
-- others. The line has one entry per tenant and priority, so a noisy tenant's messages need not be
-- scanned.

-- A heap of tenants: the top is the one whose next message has the lowest place.
local function push(heap, tenant)
  local i = #heap + 1
  while i > 1 do
    local up = math.floor(i / 2)
    if heap[up].at <= tenant.at then break end
    heap[i] = heap[up]
    i = up
  end
  heap[i] = tenant
end

local function pop(heap)
  local top, last, i = heap[1], table.remove(heap), 1
  if #heap == 0 then return top end
  while 2 * i <= #heap do
    local down = 2 * i
    if down < #heap and heap[down + 1].at < heap[down].at then down = down + 1 end
    if heap[down].at >= last.at then break end
    heap[i] = heap[down]
    i = down
  end
  heap[i] = last
  return top
end

-- Advance to the next message of a tenant; return whether there is one.
local function advance(q, tenant, page_size)
  tenant.at_entry = tenant.at_entry + 1
  if tenant.at_entry > #tenant.entries then
    local last = tenant.entries[#tenant.entries]
    local from = last and "(" .. last or "[" .. tenant.name .. "\0"
    tenant.entries = call("ZRANGEBYLEX", q.grouped, from, "(" .. tenant.name .. "\1",
                          "LIMIT", "0", page_size)
    tenant.at_entry = 1
  end
  tenant.entry = tenant.entries[tenant.at_entry]
  if not tenant.entry then return false end
  tenant.at = tonumber(place_in(tenant.entry), 16)
  return true
end

-- Return up to `count` ready messages in delivery order: id, score, and for those of a tenant its
-- name and their entry in q.grouped. Read-only.
local function in_turn(q, count)
  local page_size = math.min(count, 100)
  local found, page, rank, first = {}, {}, 0, 0
  local in_flight_before = call("ZCARD", q.leases)

  local function standing()  -- the entry of the line at `rank`, its lane and place
    if 2 * (rank - first) >= #page then
      first = rank
      page = call("ZRANGE", q.line, rank, rank + page_size - 1, "WITHSCORES")
    end
    local name, at = page[2 * (rank - first) + 1], tonumber(page[2 * (rank - first) + 2])
    if name then return name, math.floor(at / SPAN), at % SPAN end
  end

  local function deliver(heap, tenant, lane)
    found[#found + 1] = {id = id_in(tenant.entry), score = lane * SPAN + tenant.at,
                         tenant = tenant.name, entry = tenant.entry}
    if advance(q, tenant, page_size) then push(heap, tenant) end
  end

  local name, lane, at = standing()
  while name and #found < count do
    local here, in_flight, quiet, noisy = lane, in_flight_before, {}, {}
    while #found < count do
      if quiet[1] and not (lane == here and at <= quiet[1].at) then
        local tenant = pop(quiet)
        if is_noisy(tenant.held, in_flight) then
          push(noisy, tenant)
        else
          tenant.held, in_flight = tenant.held + 1, in_flight + 1
          deliver(quiet, tenant, here)
        end
      elseif lane == here then
        if string.byte(name) ~= 103 then
          found[#found + 1] = {id = name, score = lane * SPAN + at}
        else
          local tenant = {name = string.sub(name, 2), entries = {}, at_entry = 0}
          tenant.held = tonumber(call("HGET", q.groups, tenant.name) or 0)
          if advance(q, tenant, page_size) then push(quiet, tenant) end
        end
        rank = rank + 1
        name, lane, at = standing()
      else
        break
      end
    end
    while noisy[1] and #found < count do deliver(noisy, pop(noisy), here) end
  end
  return found
end
