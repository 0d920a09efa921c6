#!lua flags=allow-oom
-- Keep a text for all brokers, if what was kept so far is what the caller knows.
--
-- KEYS after the queue's: the text. ARGV: names (2); what is known, empty for nothing; the new text.
-- Answer: 1, also if this call was made before and its answer lost; 0 if it is another one by now.
--@include queue
local kept = KEYS[extra_keys + 1]
local now = call("GET", kept) or ""
if now ~= ARGV[3] then return now == ARGV[4] and 1 or 0 end
call("SET", kept, ARGV[4])
return 1
