-- Piece: the history of a queue, for those who read it by offset.
--
-- Each entry has the fields kind, id (empty for purged) and time (microseconds), and what the
-- kind adds: sent and scheduled have body, attributes (JSON), priority, due (of what was sent:
-- its time), and group if it has one; leased has number and deadline; extended has deadline;
-- returned has outcome and due (0: at once); died has outcome, reason and to; redriven has to.
-- acknowledged, came_due, released, removed and purged add nothing. history.py reads it.
local function journal(q, kind, id, ...)
  if q.journals then
    call("XADD", q.journal, "*", "kind", kind, "id", id, "time", string.format("%.0f", now), ...)
  end
end

-- A packed message as its attributes and its body: see wire.py.
local function parts(value)
  if string.byte(value) == 0 then return "{}", string.sub(value, 2) end
  local length = struct.unpack(">I4", value, 2)
  local attributes = cmsgpack.unpack(string.sub(value, 6, 5 + length))
  return cjson.encode(attributes), string.sub(value, 6 + length)
end
