-- Include: the history of a queue, which is read by offset.
--
-- Each entry has the fields kind, id (empty for purged) and time (microseconds), and further fields
-- by kind: sent and scheduled have body, attributes (JSON), priority, due (for sent: its time), and
-- group if there is one; leased has number and deadline; extended has deadline; returned has
-- outcome and due (0: immediately); died has outcome, reason and to; redriven has to. acknowledged,
-- came_due, released, removed and purged have no others. history.py reads it.
local function journal(q, kind, id, ...)
  if q.journals then
    call("XADD", q.journal, "*", "kind", kind, "id", id, "time", string.format("%.0f", now), ...)
  end
end

-- Split a packed message into attributes and body: see wire.py.
local function parts(value)
  if string.byte(value) == 0 then return "{}", string.sub(value, 2) end
  local length = struct.unpack(">I4", value, 2)
  local attributes = cmsgpack.unpack(string.sub(value, 6, 5 + length))
  return cjson.encode(attributes), string.sub(value, 6 + length)
end
