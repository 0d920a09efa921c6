-- Piece: the deliveries that a caller names, as pairs of id and token in ARGV from `first` on.

-- What is known of those that hold their message now, and "1" or "0" for each that was named.
local function held(first, act)
  local answers, seen = {}, {}
  for i = first, #ARGV, 2 do
    local id = ARGV[i]
    local raw = call("HGET", own.states, id)
    local live = raw and not seen[id] and string.sub(raw, TOKEN_AT, TOKEN_AT + 15) == ARGV[i + 1]
      and struct.unpack(">d", raw, DEADLINE_AT) > now
    if live then
      seen[id] = true
      act(id, unpack_state(raw))
      answers[#answers + 1] = "1"
    else
      answers[#answers + 1] = "0"
    end
  end
  return table.concat(answers)
end

-- How many dead letters wait to be carried to a queue whose keys are not here.
local function on_the_way()
  local near = other and other.name == own.dead
  return own.dead and not near and call("HLEN", own.outbox) or 0
end
