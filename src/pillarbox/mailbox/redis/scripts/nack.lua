#!lua flags=allow-oom
-- Give messages back to be redelivered; those whose deliveries are used up die.
--
-- ARGV: names (2); delay; then pairs of id and token.
-- Answer: "1" or "0" for each, and how many dead letters wait to be carried elsewhere.
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
