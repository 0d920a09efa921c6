#!lua flags=allow-oom
-- Delete all messages and deduplication ids.
--
-- ARGV: names (2). Returns the number of messages. Keys are unlinked: memory is freed later.
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
