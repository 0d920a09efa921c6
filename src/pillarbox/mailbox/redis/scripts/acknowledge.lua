#!lua flags=allow-oom
-- Acknowledge messages: delete them.
--
-- ARGV: names (2); then pairs of id and token. Returns "1" or "0" for each.
--@include queue
--@include now
--@include state
--@include line
--@include journal
local ids, tokens = {}, {}
for i = 3, #ARGV, 2 do
  ids[#ids + 1], tokens[#tokens + 1] = ARGV[i], ARGV[i + 1]
end
-- Settle what is due before acknowledging: another group may have become ready first.
local function settle_first()
--@include fate
  settle_all()
end

local states = for_many("HMGET", own.states, ids)
local done, answers, seen, grouped = {}, {}, {}, false
for i, id in ipairs(ids) do
  local raw = states[i]
  local live = raw and not seen[id] and string.sub(raw, TOKEN_AT, TOKEN_AT + 15) == tokens[i]
    and struct.unpack(">d", raw, DEADLINE_AT) > now
  answers[i] = live and "1" or "0"
  if live then
    seen[id] = true
    done[#done + 1] = id
    grouped = grouped or (not own.fair and string.byte(raw, STATE_BYTES + 1) ~= 0)
  end
end
if #done > 0 then
  if grouped then settle_first() end
  for_many("ZREM", own.leases, done)
  for_many("HDEL", own.bodies, done)
  for_many("HDEL", own.states, done)
  for i, id in ipairs(ids) do
    if answers[i] == "1" then
      if string.byte(states[i], STATE_BYTES + 1) ~= 0 then
        unhold(own, id, unpack_state(states[i]))
      end
      journal(own, "acknowledged", id)
    end
  end
  wake_all()
end
return table.concat(answers)
