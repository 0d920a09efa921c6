#!lua flags=allow-oom
-- Nothing is asked: whatever is due happens, and a parked receiver is woken if it should be.
--
-- ARGV: names (2); how many of the outbox to tell. Answer: the time, when something happens next,
-- and the outbox: ticket, then name of the queue, id, packed message and state, with their sizes.
--@include queue
--@include now
--@include state
--@include line
--@include journal
--@include fate
settle_all()
wake_all()
if call("ZCARD", own.line) > 0 and call("LLEN", own.wake) == 0
    and call("EXISTS", own.parked) == 1 then
  call("RPUSH", own.wake, "")
end
return {now, next_at(), call("HRANDFIELD", own.outbox, ARGV[3], "WITHVALUES")}
