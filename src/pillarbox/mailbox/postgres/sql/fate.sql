-- What happens to a message when its delivery fails or its delay ends.

-- Return whether the failed delivery was the message's last.
CREATE OR REPLACE FUNCTION pillarbox.is_last(q pillarbox.queues, m pillarbox.messages)
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT q.max_deliveries > 0 AND q.dead IS NOT NULL AND NOT q.on_receive
    AND m.deliveries - m.deliveries_before + 1 >= q.max_deliveries
$$;

-- Return the message after a failed delivery. With a reason, it is dead-lettered.
CREATE OR REPLACE FUNCTION pillarbox.failed(
  m pillarbox.messages, q pillarbox.queues, at_ bigint, outcome_ text, reason_ bytea
) RETURNS pillarbox.messages LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF reason_ IS NOT NULL OR q.max_deliveries > 0 OR q.on_receive THEN
    m.attempts := coalesce(m.attempts, '[]') || jsonb_build_array(
      jsonb_build_array(m.leased_at, at_, outcome_));
    IF jsonb_array_length(m.attempts) > 100 THEN
      m.attempts := m.attempts - 0;
    END IF;
  END IF;
  m.deliveries := m.deliveries + 1;
  IF reason_ IS NOT NULL THEN
    m.source := q.name;
    m.reason := reason_;
    m.died_at := at_;
    m.deliveries_before := m.deliveries;
  END IF;
  RETURN m;
END $$;

CREATE OR REPLACE FUNCTION pillarbox.reason_for(outcome_ text, deliveries_ integer) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$
  SELECT convert_to(outcome_ || ' after ' || deliveries_ || ' deliveries', 'UTF8')
$$;

-- Move a message to the end of another queue. Returns how many became ready there.
CREATE OR REPLACE FUNCTION pillarbox.move(m pillarbox.messages, to_ integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE group_ text := coalesce(m.group_name, m.tenant);
BEGIN
  m.tenant := NULL;
  m.group_name := NULL;
  IF group_ IS NOT NULL AND pillarbox.admits_tenants(to_) THEN
    m.tenant := group_;
  ELSIF group_ IS NOT NULL THEN
    m.group_name := group_;
    PERFORM pillarbox.lock_groups(to_, ARRAY[group_]);
  END IF;
  UPDATE pillarbox.queues SET room = 0 WHERE id = to_ AND capacity IS NOT NULL AND room > 0;
  RETURN pillarbox.join_line(m, to_, pillarbox.next_place());
END $$;

-- Put back in line: at its place in its group, at its own place, at the front, or at the end.
CREATE OR REPLACE FUNCTION pillarbox.give_back(
  m pillarbox.messages, q pillarbox.queues, to_front_ boolean
) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE place_ bigint := m.place;
BEGIN
  IF m.group_name IS NULL THEN
    IF q.redelivery = 'original' THEN
      IF NOT q.has_tenants THEN
        PERFORM pillarbox.rewind(q.id);
      END IF;
    ELSIF to_front_ THEN
      UPDATE pillarbox.queues SET front = front + 1, rewinds = rewinds + 1 WHERE id = q.id
        RETURNING (1::bigint << 54) - front INTO place_;
    ELSE
      place_ := pillarbox.next_place();
    END IF;
  END IF;
  RETURN pillarbox.join_line(m, q.id, place_);
END $$;

-- Handle a failed delivery: redeliver or dead-letter. Returns how many messages became ready.
CREATE OR REPLACE FUNCTION pillarbox.fail(
  m pillarbox.messages, q pillarbox.queues, at_ bigint, outcome_ text, due_ bigint, reason_ bytea
) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE freed integer := 0;
BEGIN
  IF reason_ IS NULL AND pillarbox.is_last(q, m) THEN
    reason_ := pillarbox.reason_for(outcome_, m.deliveries + 1);
  END IF;
  m := pillarbox.failed(m, q, at_, outcome_, reason_);
  IF reason_ IS NOT NULL THEN
    PERFORM pillarbox.wake(q.dead, pillarbox.move(m, q.dead));
    IF m.group_name IS NOT NULL THEN
      freed := pillarbox.line_up(q.id, m.group_name);
    END IF;
    PERFORM pillarbox.record(q, 'died', m.id, jsonb_build_object(
      'outcome', outcome_, 'reason', encode(reason_, 'base64'),
      'to', (SELECT name FROM pillarbox.queues WHERE id = q.dead)));
    RETURN freed;
  END IF;
  PERFORM pillarbox.record(
    q, 'returned', m.id, jsonb_build_object('outcome', outcome_, 'due', due_));
  IF due_ = 0 THEN
    RETURN pillarbox.give_back(m, q, false);
  END IF;
  UPDATE pillarbox.messages SET
    state = 3, due = due_, leased_at = 0, token = NULL,
    deliveries = m.deliveries, attempts = m.attempts
    WHERE id = m.id;
  RETURN 0;
END $$;

-- Settle what is due, oldest first, up to a limit. Returns the time up to which all is settled.
-- A group that another transaction has locked is left to the next caller.
CREATE OR REPLACE FUNCTION pillarbox.settle(q pillarbox.queues, since_ bigint, now_ bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  m pillarbox.messages;
  ready_ integer := 0;
  seen integer := 0;
BEGIN
  FOR m IN
    SELECT * FROM pillarbox.messages
    WHERE queue = q.id AND state IN (1, 2, 3) AND due >= since_ AND due <= now_
    ORDER BY due, id LIMIT 100 FOR UPDATE SKIP LOCKED
  LOOP
    seen := seen + 1;
    IF m.group_name IS NOT NULL AND NOT pg_try_advisory_xact_lock(
      1885500419, pillarbox.group_key(q.id, m.group_name)
    ) THEN
      CONTINUE;
    END IF;
    IF m.state = 1 THEN
      ready_ := ready_ + pillarbox.fail(m, q, m.due, 'expired', 0, NULL);
    ELSIF m.state = 3 THEN
      PERFORM pillarbox.record(q, 'came_due', m.id, NULL);
      ready_ := ready_ + pillarbox.give_back(m, q, false);
    ELSE
      PERFORM pillarbox.record(q, 'came_due', m.id, NULL);
      ready_ := ready_ + pillarbox.join_line(m, q.id, pillarbox.next_place());
    END IF;
    IF seen = 100 THEN
      now_ := m.due;
    END IF;
  END LOOP;
  IF ready_ > 0 THEN
    PERFORM pillarbox.wake(q.id, ready_);
  END IF;
  RETURN now_;
END $$;

-- The same for a queue and its source queues, if there is anything to do.
CREATE OR REPLACE FUNCTION pillarbox.settle_all(q pillarbox.queues, since_ bigint, now_ bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  source_ pillarbox.queues;
  until_ bigint := now_;
BEGIN
  IF q.dead IS NULL OR q.on_receive THEN
    FOR source_ IN SELECT * FROM pillarbox.queues WHERE dead = q.id LOOP
      until_ := least(until_, pillarbox.settle(source_, since_, now_));
    END LOOP;
  END IF;
  PERFORM FROM pillarbox.messages
    WHERE queue = q.id AND state IN (1, 2, 3) AND due >= since_ AND due <= now_ LIMIT 1;
  IF FOUND THEN
    until_ := least(until_, pillarbox.settle(q, since_, now_));
  END IF;
  RETURN until_;
END $$;
