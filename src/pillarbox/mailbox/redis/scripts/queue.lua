-- Include: the queues that a script works on, and the time.
--
-- KEYS are sets of 13, one for each queue, all under one hash tag:
--    1 queue    hash    settings and counters: redelivery, capacity, max, dead, sources,
--                       journal, fair (1: groups are tenants, see fair.lua); seq (messages
--                       sent), front (released to the front), purges, paused (1: no delivery);
--                       of a broker's queue also retention (microseconds), on_receive (1:
--                       dead-letter on the receive after the last delivery), sqs (its
--                       attributes), version (changes with each of these)
--    2 bodies   hash    id -> packed attributes and body; never read here
--    3 states   hash    id -> see state.lua; none for a plain message that was never delivered
--    4 line     zset    id or "g" .. group -> (255 - priority) * 2^45 + place: ready messages; in a
--                       fair queue a group is priority .. " " .. tenant, placed as its first one
--    5 leases   zset    id -> deadline, in microseconds
--    6 later    zset    id -> when it is due, in microseconds
--    7 grouped  zset    group, place and id, all with score 0: messages that wait in groups
--    8 groups   hash    group -> how many messages hold it: in flight, or nacked with a delay; with
--                       redelivery="original" also " " .. group -> the places of these messages
--    9 wake     list    one token for each parked receiver that should retry
--   10 parked   string  exists while receivers are parked; when one will retry by itself, or "-"
--   11 outbox   hash    ticket -> a message to be moved to a queue under another hash tag
--   12 arrived  zset    ticket -> when it came from such an outbox, to accept it only once
--   13 journal  stream  events, if the queue was opened with journal=True
--
-- ARGV[1] is the name of the script's own queue, followed by a zero byte and the version that the
-- caller knows, if any: the script does nothing if the version has changed. ARGV[2] is the name of
-- the second queue, or empty: its dead-letter queue, or its source queue.
local call = redis.call
local SPAN = 35184372088832  -- 2^45: places of one priority
local MIDDLE = 17592186044416  -- 2^44: the place of the first message; the front is below

local function open(name, at)
  local q = {
    name = name, queue = KEYS[at + 1], bodies = KEYS[at + 2], states = KEYS[at + 3],
    line = KEYS[at + 4], leases = KEYS[at + 5], later = KEYS[at + 6], grouped = KEYS[at + 7],
    groups = KEYS[at + 8], wake = KEYS[at + 9], parked = KEYS[at + 10], outbox = KEYS[at + 11],
    arrived = KEYS[at + 12], journal = KEYS[at + 13],
    ready = 0,  -- number of messages that joined the line in this script
  }
  local got = call("HMGET", q.queue, "max", "dead", "redelivery", "capacity", "journal",
                   "sources", "version", "on_receive", "retention", "paused", "fair")
  q.max = got[1] and tonumber(got[1]) or 0
  q.dead = got[2]
  q.original = got[3] == "original"
  q.capacity = got[4] and tonumber(got[4])
  q.journals = got[5]
  q.sources = got[6]
  q.version = got[7]
  q.on_receive = got[8]
  q.retention = got[9] and tonumber(got[9])
  q.paused = got[10]
  q.fair = got[11]
  return q
end

local own_name, known_version = string.match(ARGV[1], "^([^%z]*)%z?(.*)$")
local own, other = open(own_name, 0)
if known_version ~= "" and known_version ~= own.version then
  return redis.error_reply("STALE the queue was changed or deleted")
end
if ARGV[2] ~= "" then other = open(ARGV[2], 13) end
local extra_keys = other and 26 or 13  -- index of the first script-specific key
if own.dead and not other and own.dead == own.name .. "_dlq" then
  return redis.error_reply("PAIR its dead letters are under the same tag")
end

-- Run a command on many members, a few thousand per call, because Lua's stack is small.
local function for_many(command, key, list)
  if #list <= 4000 then return call(command, key, unpack(list)) end
  local all = {}
  for first = 1, #list, 4000 do
    local got = call(command, key, unpack(list, first, math.min(first + 3999, #list)))
    if type(got) == "table" then
      for i = 1, #got do all[first + i - 1] = got[i] end
    end
  end
  return all
end
