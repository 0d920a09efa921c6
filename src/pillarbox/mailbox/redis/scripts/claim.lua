#!lua flags=allow-oom
-- Lease messages; if there are none, return how long the caller may sleep.
--
-- KEYS after the queues': the result of the receive with this attempt id, if there is one
-- (MessagePack: expiry, token, ids). Repeating the attempt id returns the same messages with
-- renewed leases, as long as it holds all of them. ARGV: names (2); count; timeout; token of these
-- leases; until when the caller waits (negative: for how long; 0: not at all); the time it agreed
-- to watch for, if it was parked; the maximum number of messages in flight (empty: no limit).
-- Returns the time, then ids (each with its score), packed messages and states before this
-- delivery; or the time, how long to sleep (0: not, -1: retry immediately, -2: too many in flight),
-- the time the caller must watch for, and the queues under other tags whose dead-letter queue this
-- is. Then, the number of dead letters in the outbox; and the token, if it is another one.
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

-- The same for a fair queue, from whose line these were popped: the first tenant is at `from`.
local function take_in_turn(popped, from)
--@include noisy
--@include fair
  local taken, back, plain, entries, held = {}, {}, {}, {}, {}
  for i = 1, from - 1 do taken[i] = popped[i] end
  for i = from, #popped, 2 do back[#back + 1], back[#back + 2] = popped[i + 1], popped[i] end
  for_many("ZADD", own.line, back)
  for _, each in ipairs(in_turn(own, count - #taken / 2)) do
    taken[#taken + 1], taken[#taken + 2] = each.id, string.format("%.0f", each.score)
    if each.tenant then
      entries[#entries + 1] = each.entry
      held[each.tenant] = (held[each.tenant] or 0) + 1
    else
      plain[#plain + 1] = each.id
    end
  end
  if #plain > 0 then for_many("ZREM", own.line, plain) end
  if #entries > 0 then for_many("ZREM", own.grouped, entries) end
  for tenant, more in pairs(held) do
    call("HINCRBY", own.groups, tenant, more)
    line_up(own, tenant)
  end
  return taken
end

-- Return up to `count` messages from the head of the line; a group yields as many as still fit.
local function take()
  local popped = call("ZPOPMIN", own.line, count)
  local mixed = false
  for i = 1, #popped, 2 do
    if string.byte(popped[i]) == 103 then mixed = i break end
  end
  if not mixed then return popped end
  if own.fair then return take_in_turn(popped, mixed) end
  local taken = {}
  for i = 1, #popped, 2 do
    local room = count - #taken / 2
    if room == 0 then
      call("ZADD", own.line, popped[i + 1], popped[i])
    elseif string.byte(popped[i]) ~= 103 then
      taken[#taken + 1], taken[#taken + 2] = popped[i], popped[i + 1]
    else
      local group = string.sub(popped[i], 2)
      local entries, places = of_group(own, group, room, first_held(own, group)), {}
      for _, entry in ipairs(entries) do
        taken[#taken + 1], taken[#taken + 2] = id_in(entry), "0"
        places[#places + 1] = place_in(entry)
      end
      if #entries > 0 then
        for_many("ZREM", own.grouped, entries)
        hold_group(own, group, places)
      end
    end
  end
  return taken
end

-- Delete expired messages, dead-letter those with no deliveries left; return the rest of `taken`.
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
      if s then unhold(own, id, s) end
      journal(own, "removed", id)
    elseif s and own.on_receive and own.dead and own.max > 0 and failed_here(s) >= own.max then
      die_in_line(own, id, s)
    else
      kept[#kept + 1], kept[#kept + 2] = id, taken[2 * i]
    end
  end
  return kept
end

local function lease(taken)
  local ids = {}
  local until_ = string.format("%.0f", deadline)  -- formatted once: each call would format the number again
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
    else  -- the body is missing: the caller reports it
      local s = unpack_state(states[i])
      call("HDEL", own.states, id)
      unhold(own, id, s)
    end
  end
  if #held > 0 then
    for_many("HSET", own.states, held)
    for_many("ZADD", own.leases, deadlines)
  end
  return {now, taken, bodies, states, own.on_receive and call("HLEN", own.outbox) or 0}
end

-- Return the messages that this attempt was given before, if it still holds them all.
local ATTEMPT_US = 300000000
local attempt = KEYS[extra_keys + 1]
local function lease_again()
  local raw = attempt and call("GET", attempt)
  if not raw then return false end
  local until_, theirs, ids = unpack(cmsgpack.unpack(raw))
  local states = for_many("HMGET", own.states, ids)
  local good = until_ > now
  for i = 1, #ids do
    good = good and states[i] and string.sub(states[i], TOKEN_AT, TOKEN_AT + 15) == theirs
      and struct.unpack(">d", states[i], DEADLINE_AT) > now
  end
  if not good then
    call("DEL", attempt)
    return false
  end
  local taken = {}
  for i, id in ipairs(ids) do
    local s = unpack_state(states[i])
    s.deadline = deadline
    save(own, id, s)
    call("ZADD", own.leases, deadline, id)
    taken[#taken + 1], taken[#taken + 2] = id, "0"
  end
  return {now, taken, for_many("HMGET", own.bodies, ids), states, 0, theirs}
end

local function remember(taken)
  local ids = {}
  for i = 1, #taken, 2 do ids[#ids + 1] = taken[i] end
  local packed = cmsgpack.pack({now + ATTEMPT_US, token, ids})
  call("SET", attempt, packed, "PX", ATTEMPT_US / 1000)
end

-- The receiver that watches the clock for all parked ones leaves: wake another to take over.
local function hand_over(watched)
  if not watched or watched ~= ARGV[7] then return watched end
  call("SET", own.parked, "-", "KEEPTTL")
  return "-"
end

local function park(watched, till)
  call("DEL", own.wake)  -- nothing is ready: remaining tokens are outdated
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
local answer = lease_again()
local limit = tonumber(ARGV[8] or "")
local crowded = limit and not answer and call("ZCARD", own.leases) >= limit
local taken, tries = {}, 0
local more = not answer and not crowded and not own.paused
while more do
  local found = take()
  taken, tries = deliverable(found), tries + 1
  more = #taken == 0 and #found > 0 and tries < TRIES_MAX
end
if #taken > 0 then
  answer = lease(taken)
  if attempt then remember(taken) end
end
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
  if unwatched or (call("ZCARD", own.line) > 0 and not own.paused) then call("RPUSH", own.wake, "") end
end
if answer then
  arm_all(deadline)
  return answer
end
local at = next_at()
return {now, at > 0 and at <= now and -1 or 0, "", own.sources, call("HLEN", own.outbox)}
