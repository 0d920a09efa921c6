#!lua flags=allow-oom
-- Change when a message becomes visible: after a timeout, or immediately.
--
-- ARGV: names (2); timeout; 1 if only the current holder may do so; the longest time it may be held
-- since it was leased; id and token of a delivery, which may have ended.
-- Returns 1; or 0 if the message does not exist or is not held; or 2 if it would be held too long.
-- Then, the number of dead letters in the outbox.
--@include queue
--@include now
--@include state
--@include line
--@include journal
--@include fate
--@include lease
settle_all()
local timeout, longest, id, token = tonumber(ARGV[3]), tonumber(ARGV[5]), ARGV[6], ARGV[7]
local due = now + timeout

local function hold(s)
  s.deadline = due
  save(own, id, s)
  call("ZADD", own.leases, due, id)
  arm_all(due)
end

-- Put it in flight again, without counting a delivery.
local function hide(s)
  s.deliveries, s.leased_at, s.token = math.max(s.deliveries - 1, 0), now, NO_TOKEN
  hold(s)
  if s.group ~= "" then
    hold_group(own, group_of(own, s), {place_text(id, s)})
    line_up(own, group_of(own, s))
  end
end

local function change(s)
  local leased = call("ZSCORE", own.leases, id)
  local holds = leased and s.token == token and s.deadline > now
  if not holds and ARGV[4] == "1" then return 0 end
  if holds and timeout > 0 and due > s.leased_at + longest then return 2 end
  if leased and timeout > 0 then
    hold(s)
  elseif leased then
    call("ZREM", own.leases, id)
    fail(own, id, s, now, "nacked", 0)
  elseif call("ZSCORE", own.later, id) then
    if timeout > 0 then
      call("ZADD", own.later, due, id)
      arm_all(due)
    else
      came_due(own, id, now)
    end
  elseif timeout > 0 and leave(own, id, s) then
    hide(s)
  end
  return 1
end

local answer = 0
if call("HEXISTS", own.bodies, id) == 1 then answer = change(load(own, id)) end
wake_all()
return {answer, on_the_way()}
