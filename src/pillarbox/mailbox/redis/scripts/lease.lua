-- Include: the deliveries in ARGV, pairs of id and token from `first` on.

-- Return the states of those with a valid lease, and "1" or "0" for each delivery.
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

-- Return the number of dead letters in the outbox, for a queue whose keys the script does not have.
local function on_the_way()
  local near = other and other.name == own.dead
  return own.dead and not near and call("HLEN", own.outbox) or 0
end
