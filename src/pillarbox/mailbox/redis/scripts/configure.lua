#!lua flags=allow-oom
-- Create or change a broker's queue, atomically.
--
-- ARGV: names (2), with the version that the caller knows, or without one to create it; then pairs
-- of a field of the queue's hash and its value, the version first; an empty value deletes the
-- field. Returns 1, also for a repeated call whose response was lost; 0 if the queue already
-- exists.
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
