#!lua flags=allow-oom
-- Delete everything; what was sent is forgotten, so that it may be sent again.
--
-- ARGV: names (2). Answer: how many messages there were. Keys are unlinked: memory is freed later.
--@include queue
--@include now
--@include state
--@include line
--@include journal
--@include fate
settle_all()
local count = call("HLEN", own.bodies)
call("UNLINK", own.bodies, own.states, own.line, own.leases, own.later, own.grouped, own.groups)
call("HINCRBY", own.queue, "purges", 1)
own.ready = 0
wake_all()
journal(own, "purged", "")
return count
