#!lua flags=allow-oom
-- Send messages to the dead letters; back into the line if there are none.
--
-- ARGV: names (2); reason; then pairs of id and token.
-- Answer: "1" or "0" for each, and how many dead letters wait to be carried elsewhere.
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
