#!lua flags=allow-oom
-- Move ready messages to another queue, as new messages: to their source queue, or as given.
--
-- ARGV: names (2); name of the target queue, or empty; then ids.
-- Returns the number moved, and the number of messages in the outbox.
--@include queue
--@include now
--@include state
--@include line
--@include journal
--@include fate
settle_all()
local count = 0
for i = 4, #ARGV do
  local id = ARGV[i]
  if call("HEXISTS", own.bodies, id) == 1 then
    local s = load(own, id)
    local to = ARGV[3] ~= "" and ARGV[3] or s.death and s.death[1]
    if to and to ~= own.name and leave(own, id, s) then
      s.deliveries, s.death, s.sent_at = 0, nil, now
      move(own, id, s, to)
      journal(own, "redriven", id, "to", to)
      count = count + 1
    end
  end
end
wake_all()
return {count, call("HLEN", own.outbox)}
