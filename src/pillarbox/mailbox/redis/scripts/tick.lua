#!lua flags=allow-oom
-- Settle what is due, and wake a parked receiver if necessary.
--
-- ARGV: names (2); maximum number of outbox entries to return. Returns the time, the time of the
-- next timer, and the outbox: ticket, then queue name, id, packed message and state, with their
-- sizes.
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
