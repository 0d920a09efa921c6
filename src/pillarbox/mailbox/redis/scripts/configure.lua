#!lua flags=allow-oom
-- Create a queue that brokers serve, or change one: all of it at once.
--
-- ARGV: names (2), with the version that the caller knows, or with none to create it; then pairs of
-- a field of the queue's hash and its value, the version first; what is empty is deleted.
-- Answer: 1, also if this call was made before and its answer lost; 0 if there is a queue already.
--@include queue
if known_version == "" and call("EXISTS", own.queue) == 1 then
  return own.version == ARGV[4] and 1 or 0
end
for i = 3, #ARGV, 2 do
  if ARGV[i + 1] == "" then
    call("HDEL", own.queue, ARGV[i])
  else
    call("HSET", own.queue, ARGV[i], ARGV[i + 1])
  end
end
return 1
