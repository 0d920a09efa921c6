#!lua flags=allow-oom
-- Delete messages by id, in any state.
--
-- ARGV: names (2); then ids. Returns the number deleted.
--@include queue
--@include now
--@include state
--@include line
--@include journal
--@include fate
settle_all()
local count = 0
for i = 3, #ARGV do
  local id = ARGV[i]
  if call("HEXISTS", own.bodies, id) == 1 then
    local s = load(own, id)
    call("HDEL", own.bodies, id)
    call("HDEL", own.states, id)
    if call("ZREM", own.leases, id) == 1 then
      unhold(own, id, s)
    elseif call("ZREM", own.later, id) == 1 then
      if s.deliveries > 0 then unhold(own, id, s) end
    else
      leave(own, id, s)
    end
    journal(own, "removed", id)
    count = count + 1
  end
end
wake_all()
return count
