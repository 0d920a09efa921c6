#!lua flags=allow-oom
-- Remove a deleted queue from the sources of this dead-letter queue.
--
-- ARGV: names (2); name of the deleted queue. Returns the remaining sources.
--@include queue
local left = {}
for source in string.gmatch(own.sources or "", "[^,]+") do
  if source ~= ARGV[3] then left[#left + 1] = source end
end
if #left > 0 then
  call("HSET", own.queue, "sources", table.concat(left, ","))
else
  call("HDEL", own.queue, "sources")
end
return left
