#!lua flags=allow-oom
-- Return messages for redelivery; dead-letter those with no deliveries left.
--
-- ARGV: names (2); delay; then pairs of id and token.
-- Returns "1" or "0" for each, and the number of dead letters in the outbox.
--@include queue
--@include now
--@include state
--@include line
--@include journal
--@include fate
--@include lease
settle_all()
local delay = tonumber(ARGV[3])
local due = delay > 0 and now + delay or 0
local answers = held(4, function(id, s)
  call("ZREM", own.leases, id)
  fail(own, id, s, now, "nacked", due)
end)
if due > 0 then arm_all(due) end
wake_all()
return {answers, on_the_way()}
