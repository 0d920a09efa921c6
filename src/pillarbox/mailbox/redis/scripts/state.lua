-- Include: the state of one message, without its body.
--
-- priority u8, failed deliveries u32, place f64 (0: that of its id), leased at f64 (0: not
-- in flight), deadline f64, token of the lease 16 bytes, group (length u8 first), and then
-- MessagePack, {attempts, death, sent at, deliveries before its death}, or nothing. wire.py reads
-- the same. The send time of a message is that in its id, unless it was redriven in a queue with a
-- retention time: then it is the time of the redrive.
local STATE = ">BI4dddc16"
local STATE_BYTES = 45
local DEADLINE_AT, TOKEN_AT = 22, 30
local NO_TOKEN = string.rep("\0", 16)

local function pack(s)
  local head = struct.pack(STATE, s.priority, s.deliveries, s.place, s.leased_at, s.deadline,
                           s.token) .. struct.pack("B", #s.group) .. s.group
  if s.attempts or s.death or s.sent_at then
    head = head .. cmsgpack.pack({s.attempts or false, s.death or false, s.sent_at or false,
                                  s.before or 0})
  end
  return head
end

local function fresh(priority, group)
  return {priority = priority, deliveries = 0, place = 0, leased_at = 0,
          deadline = 0, token = NO_TOKEN, group = group}
end

-- Ignore values that are not a state: another program may have written to the key.
local function unpack_state(raw, priority)
  if not raw or #raw <= STATE_BYTES then return fresh(priority or 0, "") end
  local s, at = {}
  s.priority, s.deliveries, s.place, s.leased_at, s.deadline, s.token, at =
    struct.unpack(STATE, raw)
  local length = string.byte(raw, at)
  s.group = string.sub(raw, at + 1, at + length)
  if #raw > at + length then
    local ok, rest = pcall(cmsgpack.unpack, string.sub(raw, at + length + 1))
    if ok and type(rest) == "table" then
      s.attempts, s.death, s.sent_at = rest[1] or nil, rest[2] or nil, rest[3] or nil
      s.before = rest[4]
    end
  end
  return s
end

-- Return the failed deliveries in this queue: a dead letter was delivered elsewhere before.
local function failed_here(s) return s.deliveries - (s.death and s.before or 0) end

local function load(q, id) return unpack_state(call("HGET", q.states, id)) end
local function save(q, id, s) call("HSET", q.states, id, pack(s)) end

-- An id is 14 hex digits of time (microseconds), 11 of its number in the queue, and random digits.
local function place_of(id, s)
  if s.place ~= 0 then return s.place end
  return MIDDLE + (tonumber(string.sub(id, 16, 26), 16) or 0)
end
