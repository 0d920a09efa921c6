#!lua flags=allow-oom
-- The dead letters of a queue come here no more: it was deleted.
--
-- ARGV: names (2); name of that queue. Answer: the queues whose dead letters still do.
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
