#!lua flags=allow-oom
-- Return messages without counting the delivery.
--
-- ARGV: names (2); 1 if they go to the front of the line; then pairs of id and token.
-- Returns "1" or "0" for each.
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
  end_lease(s)
  give_back(own, id, s, ARGV[3] == "1")
  unhold(own, id, s)
  journal(own, "released", id)
end)
wake_all()
return {answers, on_the_way()}
