-- The line of ready messages, its order, and waking receivers.
--
-- Functions that clients call plan their statements once per session, and only with indexes:
-- outdated statistics of a table that was empty or full a minute ago would mislead the planner, and
-- planning takes longer than a statement. Functions that they call are planned with the same
-- settings.

-- The time. Tests replace this function, and only this one, to move their clock.
CREATE OR REPLACE FUNCTION pillarbox.clock() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;

CREATE OR REPLACE FUNCTION pillarbox.rank(priority integer, place bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT ((255 - priority)::bigint << 55) | place $$;

-- The first place is 2^54, which leaves space in front of it.
CREATE OR REPLACE FUNCTION pillarbox.next_place() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT (1::bigint << 54) + nextval('pillarbox.message_ids')
$$;

CREATE OR REPLACE FUNCTION pillarbox.no_queue() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the queue was deleted' USING ERRCODE = 'PB404';
END $$;

CREATE OR REPLACE FUNCTION pillarbox.find_queue(queue_ integer) RETURNS pillarbox.queues
LANGUAGE plpgsql STABLE AS $$
DECLARE q pillarbox.queues;
BEGIN
  SELECT * INTO q FROM pillarbox.queues WHERE id = queue_;
  IF NOT FOUND THEN
    PERFORM pillarbox.no_queue();
  END IF;
  RETURN q;
END $$;

-- Return a queue; and whether something may be due there, or in its source queues.
CREATE OR REPLACE FUNCTION pillarbox.look_up(queue_ integer, since_ bigint, now_ bigint)
RETURNS TABLE (q pillarbox.queues, is_due boolean) LANGUAGE sql STABLE AS $$
  SELECT s, EXISTS (
      SELECT FROM pillarbox.messages m
      WHERE m.queue = queue_ AND m.state IN (1, 2, 3) AND m.due >= since_ AND m.due <= now_
    ) OR EXISTS (SELECT FROM pillarbox.queues source WHERE source.dead = queue_)
  FROM pillarbox.queues s WHERE s.id = queue_
$$;

-- Return whether a process is parked at a queue. Without one, no NOTIFY is sent, because NOTIFY
-- serialises commits.
--
-- A process parks in this order: it locks (1885500417, queue) shared, checks whether anyone holds
-- (1885500418, queue), checks for messages. A sender locks the second, then checks the first. So
-- one of the two sees the other, whatever the order of their commits. A sender that can't lock the
-- second knows that a process is just parking.
CREATE OR REPLACE FUNCTION pillarbox.is_awaited(queue_ integer) RETURNS boolean
LANGUAGE sql VOLATILE AS $$
  SELECT NOT (pg_try_advisory_xact_lock_shared(1885500418, queue_)
    AND pg_try_advisory_lock(1885500417, queue_) AND pg_advisory_unlock(1885500417, queue_))
$$;

-- Notify parked receivers that messages are ready, or that something will be due soon.
CREATE OR REPLACE FUNCTION pillarbox.wake(queue_ integer, count_ integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF pillarbox.is_awaited(queue_) THEN
    PERFORM pg_notify('pillarbox', queue_ || ' ' || count_);
  END IF;
END $$;

-- Notify parked receivers of a timer at this time. They poll by themselves every ten seconds.
CREATE OR REPLACE FUNCTION pillarbox.arm(q pillarbox.queues, due_ bigint, now_ bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF due_ < now_ + 10000000 THEN
    PERFORM pillarbox.wake(q.id, 1);
    IF q.dead IS NOT NULL THEN
      PERFORM pillarbox.wake(q.dead, 1);
    END IF;
  END IF;
END $$;

CREATE OR REPLACE FUNCTION pillarbox.group_key(queue_ integer, group_ text) RETURNS integer
LANGUAGE sql IMMUTABLE AS $$ SELECT hashtext(queue_ || ' ' || group_) $$;

-- Take the lock that is required to add to a group or to end its hold, until the transaction ends.
-- A snapshot older than the lock would miss earlier changes: this needs READ COMMITTED.
CREATE OR REPLACE FUNCTION pillarbox.lock_groups(queue_ integer, groups_ text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'message groups need a transaction with isolation level READ COMMITTED'
      USING ERRCODE = 'PB400';
  END IF;
  PERFORM pg_advisory_xact_lock(1885500419, k) FROM (
    SELECT DISTINCT pillarbox.group_key(queue_, g) AS k FROM unnest(groups_) AS g ORDER BY k
  ) AS keys;
END $$;

-- Return the place of the first message that holds a group: in flight, or returned with a delay.
CREATE OR REPLACE FUNCTION pillarbox.first_held(queue_ integer, group_ text) RETURNS bigint
LANGUAGE sql AS $$
  SELECT min(place) FROM pillarbox.messages
  WHERE queue = queue_ AND group_name = group_ AND state IN (1, 3)
$$;

-- Put a group with something to deliver at the end of the line. Held messages block it; with
-- redelivery 'original', they block only later messages of the group. Requires the group's lock.
-- Returns how many messages became ready.
CREATE OR REPLACE FUNCTION pillarbox.line_up(queue_ integer, group_ text) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
  held bigint := pillarbox.first_held(queue_, group_);
  standing pillarbox.messages;
  first pillarbox.messages;
BEGIN
  IF held IS NOT NULL AND pillarbox.is_tail(queue_) THEN
    RETURN 0;
  END IF;
  SELECT * INTO first FROM pillarbox.messages
    WHERE queue = queue_ AND group_name = group_ AND state = 4 ORDER BY place LIMIT 1;
  IF NOT FOUND OR first.place > held THEN
    RETURN 0;
  END IF;
  SELECT * INTO standing FROM pillarbox.messages
    WHERE queue = queue_ AND group_name = group_ AND state = 0 LIMIT 1;
  IF NOT FOUND THEN
    UPDATE pillarbox.messages
      SET state = 0, rank = pillarbox.rank(priority, pillarbox.next_place()) WHERE id = first.id;
    RETURN 1;
  END IF;
  IF first.place < standing.place THEN
    -- An earlier message was returned: it takes over, unless a receiver was faster.
    UPDATE pillarbox.messages SET state = 4 WHERE id = standing.id AND state = 0;
    IF FOUND THEN
      UPDATE pillarbox.messages SET state = 0, rank = standing.rank WHERE id = first.id;
    END IF;
  END IF;
  RETURN 0;
END $$;

CREATE OR REPLACE FUNCTION pillarbox.is_tail(queue_ integer) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT redelivery = 'tail' FROM pillarbox.queues WHERE id = queue_
$$;

-- Add a message to the line, or to its group or tenant. Requires the group's lock.
CREATE OR REPLACE FUNCTION pillarbox.join_line(
  m pillarbox.messages, queue_ integer, place_ bigint
) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
  UPDATE pillarbox.messages SET
    queue = queue_, place = place_, rank = pillarbox.rank(m.priority, place_),
    state = CASE WHEN m.tenant IS NOT NULL THEN 5 WHEN m.group_name IS NULL THEN 0 ELSE 4 END,
    group_name = m.group_name, tenant = m.tenant,
    due = 0, leased_at = 0, token = NULL,
    deliveries = m.deliveries, attempts = m.attempts,
    source = m.source, reason = m.reason, died_at = m.died_at,
    deliveries_before = m.deliveries_before
    WHERE id = m.id;
  IF m.group_name IS NULL THEN
    RETURN 1;
  END IF;
  RETURN pillarbox.line_up(queue_, m.group_name);
END $$;

-- A message got an earlier place: invalidate the receivers' low-water marks.
CREATE OR REPLACE FUNCTION pillarbox.rewind(queue_ integer) RETURNS void LANGUAGE sql AS $$
  UPDATE pillarbox.queues SET rewinds = rewinds + 1 WHERE id = queue_
$$;
