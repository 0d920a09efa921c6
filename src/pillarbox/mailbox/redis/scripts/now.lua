-- Include: the server's time, in microseconds since the epoch.
local clock = call("TIME")
local now = clock[1] * 1000000 + clock[2]
