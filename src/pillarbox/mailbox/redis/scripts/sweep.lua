#!lua flags=allow-oom
-- Delete messages past the queue's retention, from the head of each priority and of each group.
--
-- ARGV: names (2); maximum number. Returns the number deleted.
--@include queue
--@include now
--@include state
--@include line
--@include journal
--@include fate
local GROUPS_SEEN_MAX = 1000
local most, count, groups = tonumber(ARGV[3]), 0, 0
if not own.retention then return 0 end
settle_all()

-- Return the message of an entry of the line and its state, if it is past its retention.
local function too_old(entry)
  local id = entry
  if string.byte(entry) == 103 then id = id_in(of_group(own, string.sub(entry, 2), 1)[1] or "") end
  if not id then return end
  local s = load(own, id)
  local sent_at = s.sent_at or tonumber(string.sub(id, 1, 14), 16) or now
  if sent_at + own.retention <= now then return id, s end
end

local from = "-inf"
while count < most do
  local head = call("ZRANGEBYSCORE", own.line, from, "+inf", "WITHSCORES", "LIMIT", 0, 1)
  if not head[1] then break end
  local id, s = too_old(head[1])
  if id then
    leave(own, id, s)
    call("HDEL", own.bodies, id)
    call("HDEL", own.states, id)
    journal(own, "removed", id)
    count = count + 1
  elseif string.byte(head[1]) == 103 and groups < GROUPS_SEEN_MAX then
    from, groups = "(" .. head[2], groups + 1
  else
    from = (math.floor(head[2] / SPAN) + 1) * SPAN  -- the next priority
  end
end
wake_all()
return count
