#!lua flags=allow-oom
-- Lease messages; or, if there is none, say until when the caller may sleep.
--
-- ARGV: names (2); how many; timeout; token of these leases; until when the caller waits (less
-- than zero: for how long; 0: not at all); what it said it would watch for, if it was parked; how
-- many may be in flight, if there is a limit.
-- Answer: the time, then ids (each with its score), packed messages and states before this
-- delivery; or the time, how long to sleep (0: not, -1: ask again at once, -2: too many are in
-- flight), what the caller watches for, and the queues under other tags whose dead letters come
-- here. Then, how many dead letters wait to be carried elsewhere.
--@include queue
--@include now
--@include state
--@include line
--@include journal
local PARKED_MS = 15000
local count, timeout, token = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local deadline = now + timeout

local function settle_first()
--@include fate
  settle_all()
end

-- Up to `count` messages from the head of the line; a group gives as many as there is room for.
local function take()
  local popped = call("ZPOPMIN", own.line, count)
  local mixed = false
  for i = 1, #popped, 2 do
    if string.byte(popped[i]) == 103 then mixed = true break end
  end
  if not mixed then return popped end
  local taken = {}
  for i = 1, #popped, 2 do
    local room = count - #taken / 2
    if room == 0 then
      call("ZADD", own.line, popped[i + 1], popped[i])
    elseif string.byte(popped[i]) ~= 103 then
      taken[#taken + 1], taken[#taken + 2] = popped[i], popped[i + 1]
    else
      local group = string.sub(popped[i], 2)
      local entries = of_group(own, group, room)
      for _, entry in ipairs(entries) do
        taken[#taken + 1], taken[#taken + 2] = id_in(entry), "0"
      end
      if #entries > 0 then
        for_many("ZREM", own.grouped, entries)
        call("HINCRBY", own.groups, group, #entries)
      end
    end
  end
  return taken
end

-- What is too old is deleted, and what has no deliveries left dies; the rest of `taken`.
local TRIES_MAX = 50
local function deliverable(taken)
  if not own.retention and not own.on_receive then return taken end
--@include fate
  local ids, kept = {}, {}
  for i = 1, #taken, 2 do ids[#ids + 1] = taken[i] end
  local states = #ids > 0 and for_many("HMGET", own.states, ids) or {}
  for i, id in ipairs(ids) do
    local s = states[i] and unpack_state(states[i])
    local sent_at = s and s.sent_at or tonumber(string.sub(id, 1, 14), 16) or now
    if own.retention and sent_at + own.retention <= now then
      call("HDEL", own.bodies, id)
      call("HDEL", own.states, id)
      if s then unhold(own, s.group) end
      journal(own, "removed", id)
    elseif s and own.on_receive and own.dead and own.max > 0 and s.deliveries >= own.max then
      die_in_line(own, id, s)
    else
      kept[#kept + 1], kept[#kept + 2] = id, taken[2 * i]
    end
  end
  return kept
end

local function lease(taken)
  local ids = {}
  local until_ = string.format("%.0f", deadline)  -- once: a call writes each number out anew
  for i = 1, #taken, 2 do ids[#ids + 1] = taken[i] end
  local bodies = for_many("HMGET", own.bodies, ids)
  local states = for_many("HMGET", own.states, ids)
  local held, deadlines, plain = {}, {}, {}
  for i, id in ipairs(ids) do
    if bodies[i] then
      local state
      if states[i] then
        local s = unpack_state(states[i])
        s.leased_at, s.deadline, s.token = now, deadline, token
        state = pack(s)
      else
        local priority = 255 - math.floor(taken[2 * i] / SPAN)
        state = plain[priority]
        if not state then
          local s = fresh(priority, "")
          s.leased_at, s.deadline, s.token = now, deadline, token
          state = pack(s)
          plain[priority] = state
        end
      end
      held[#held + 1], held[#held + 2] = id, state
      deadlines[#deadlines + 1], deadlines[#deadlines + 2] = until_, id
      if own.journals then
        local number = unpack_state(state).deliveries + 1
        journal(own, "leased", id, "number", number, "deadline", until_)
      end
    else  -- its body is gone: the caller reports it
      local s = unpack_state(states[i])
      call("HDEL", own.states, id)
      unhold(own, s.group)
    end
  end
  if #held > 0 then
    for_many("HSET", own.states, held)
    for_many("ZADD", own.leases, deadlines)
  end
  return {now, taken, bodies, states, own.on_receive and call("HLEN", own.outbox) or 0}
end

-- Who watches the clock for all that are parked goes: another must.
local function hand_over(watched)
  if not watched or watched ~= ARGV[7] then return watched end
  call("SET", own.parked, "-", "KEEPTTL")
  return "-"
end

local function park(watched, till)
  call("DEL", own.wake)  -- nothing is ready: what is there is from before
  local at = next_at()
  if at > 0 and at <= now then return {now, -1} end
  local sleep_until = math.min(till, now + LOOK_AGAIN)
  local seen_to = tonumber(watched)
  local watch = ""
  if at > 0 and (not seen_to or seen_to <= now or at < seen_to) then
    sleep_until = math.min(sleep_until, at)
    watch = string.format("%.0f", sleep_until)
  end
  call("SET", own.parked, watch ~= "" and watch or watched or "-", "PX", PARKED_MS)
  return {now, sleep_until - now, watch, own.sources, call("HLEN", own.outbox)}
end

if any_due() then settle_first() end
local crowded = ARGV[8] and call("ZCARD", own.leases) >= tonumber(ARGV[8])
local taken, tries = {}, 0
local more = not crowded
while more do
  local found = take()
  taken, tries = deliverable(found), tries + 1
  more = #taken == 0 and #found > 0 and tries < TRIES_MAX
end
local answer = #taken > 0 and lease(taken)
local watched = hand_over(call("GET", own.parked))
if own.ready > 0 then own.ready = math.min(own.ready, call("ZCARD", own.line)) end
wake_all()
local till = tonumber(ARGV[6])
if till < 0 then till = now - till end
if tries == TRIES_MAX and not answer then return {now, -1} end
if crowded and till <= now then return {now, -2, "", own.sources, 0} end
if not answer and till > now then return park(watched, till) end
if watched and call("LLEN", own.wake) == 0 then
  local at = watched == "-" and next_at() or 0
  local unwatched = at > 0 and at < now + LOOK_AGAIN
  if unwatched or call("ZCARD", own.line) > 0 then call("RPUSH", own.wake, "") end
end
if answer then
  arm_all(deadline)
  return answer
end
local at = next_at()
return {now, at > 0 and at <= now and -1 or 0, "", own.sources, call("HLEN", own.outbox)}
