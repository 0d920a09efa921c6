#!lua flags=allow-oom
-- Return one page of the ready messages, to iterate over all of them: the line, then the groups.
--
-- ARGV: names (2); line or grouped; first rank; number of ranks; 1 to omit the messages.
-- Returns the number of ranks found, ids (each with its score), packed messages, states.
--@include queue
--@include now
--@include state
--@include line
--@include journal
--@include fate
settle_all()
wake_all()
local first = tonumber(ARGV[4])
local entries = call("ZRANGE", own[ARGV[3]], first, first + ARGV[5] - 1, "WITHSCORES")
local found, ids = {}, {}
for i = 1, #entries, 2 do
  local id = entries[i]
  if ARGV[3] == "grouped" then id = id_in(id) end
  if string.byte(id) ~= 103 then
    found[#found + 1], found[#found + 2] = id, entries[i + 1]
    ids[#ids + 1] = id
  end
end
if #ids == 0 then return {#entries / 2, {}, {}, {}} end
local bodies = ARGV[6] == "1" and {} or for_many("HMGET", own.bodies, ids)
return {#entries / 2, found, bodies, for_many("HMGET", own.states, ids)}
