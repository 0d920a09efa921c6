#!lua flags=allow-oom
-- Dead-letter messages; without a dead-letter queue, return them.
--
-- ARGV: names (2); reason; then pairs of id and token.
-- Returns "1" or "0" for each, and the number of dead letters in the outbox.
--@include queue
--@include now
--@include state
--@include line
--@include journal
--@include fate
--@include lease
settle_all()
local answers = held(4, function(id, s)
  call("ZREM", own.leases, id)
  if own.dead then
    die(own, id, s, now, "rejected", ARGV[3])
  else
    returned(own, id, s, now, "rejected", 0)
  end
end)
wake_all()
return {answers, on_the_way()}
