#!lua flags=allow-oom
-- Accept messages from the outbox of a queue under another hash tag, each message once.
--
-- ARGV: names (2); then ticket, id, packed message and state of each. Returns how many are new.
--@include queue
--@include now
--@include state
--@include line
--@include journal
--@include fate
local REMEMBERED = 3600000000
local FORGOTTEN_MAX = 100
local old = call("ZRANGEBYSCORE", own.arrived, "-inf", now - REMEMBERED, "LIMIT", 0, FORGOTTEN_MAX)
if #old > 0 then call("ZREM", own.arrived, unpack(old)) end
local count = 0
for i = 3, #ARGV, 4 do
  local id = ARGV[i + 1]
  if call("ZADD", own.arrived, "NX", now, ARGV[i]) == 1 and call("HEXISTS", own.bodies, id) == 0 then
    local s = unpack_state(ARGV[i + 3])
    s.place = next_place(own)
    call("HSET", own.bodies, id, ARGV[i + 2])
    save(own, id, s)
    join(own, id, s)
    count = count + 1
  end
end
wake_all()
return count
