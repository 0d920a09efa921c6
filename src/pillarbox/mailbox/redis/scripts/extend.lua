#!lua flags=allow-oom
-- Set new deadlines for leases.
--
-- ARGV: names (2); timeout; then pairs of id and token. Returns "1" or "0" for each.
--@include queue
--@include now
--@include state
--@include line
--@include journal
--@include lease
local deadline = now + ARGV[3]
local answers = held(4, function(id, s)
  s.deadline = deadline
  save(own, id, s)
  call("ZADD", own.leases, deadline, id)
  journal(own, "extended", id, "deadline", string.format("%.0f", deadline))
end)
arm_all(deadline)
return {answers, 0}
