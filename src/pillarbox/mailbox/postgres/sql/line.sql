-- Who stands in line, in which order, and who is woken for it.
--
-- Functions that clients call plan their statements once in a session, and only with indexes: the
-- planner would be misled by statistics of a table that was empty or full a minute ago, and
-- planning takes longer than a statement. What they call is planned under the same settings.

-- The time. Tests replace this function, and only this one, to move their clock.
CREATE OR REPLACE FUNCTION pillarbox.clock() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;

CREATE OR REPLACE FUNCTION pillarbox.rank(priority integer, place bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT ((255 - priority)::bigint << 55) | place $$;

-- The first place is 2^54: there is room in front of it.
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

-- A queue; and whether something there may be due, or where dead letters come here from.
CREATE OR REPLACE FUNCTION pillarbox.look_up(queue_ integer, since_ bigint, now_ bigint)
RETURNS TABLE (q pillarbox.queues, is_due boolean) LANGUAGE sql STABLE AS $$
  SELECT s, EXISTS (
      SELECT FROM pillarbox.messages m
      WHERE m.queue = queue_ AND m.state IN (1, 2, 3) AND m.due >= since_ AND m.due <= now_
    ) OR EXISTS (SELECT FROM pillarbox.queues source WHERE source.dead = queue_)
  FROM pillarbox.queues s WHERE s.id = queue_
$$;

-- Whether a process is parked at a queue. Nobody is notified while none is: NOTIFY serialises
-- commits.
--
-- A process parks in this order: it locks (1885500417, queue) shared, it looks whether anyone holds
-- (1885500418, queue), it looks for messages. A sender locks the second, then looks at the first. So
-- one of the two sees the other, whatever the order of their commits. Who can't lock the second
-- meets one that parks right now.
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

-- Something will be due at this time. Parked receivers look by themselves every ten seconds.
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

-- Whoever adds to a group, or ends its hold, has this lock until the transaction ends. An older
-- snapshot than the lock would miss what others did before: that needs READ COMMITTED.
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

-- The place of the first message that holds a group: in flight, or given back for later.
CREATE OR REPLACE FUNCTION pillarbox.first_held(queue_ integer, group_ text) RETURNS bigint
LANGUAGE sql AS $$
  SELECT min(place) FROM pillarbox.messages
  WHERE queue = queue_ AND group_name = group_ AND state IN (1, 3)
$$;

-- A group with something to deliver stands in line, from the end on. What holds it stands in the
-- way; with redelivery 'original', only of what comes later in the group. The caller has the group's
-- lock. Answers how many messages became ready.
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
    -- An earlier one has come back: it takes over, unless a receiver was quicker.
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

-- Put a message in line, or in its group's or tenant's; the caller has the group's lock.
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

-- A message went to an earlier place: what receivers know of the line is no longer so.
CREATE OR REPLACE FUNCTION pillarbox.rewind(queue_ integer) RETURNS void LANGUAGE sql AS $$
  UPDATE pillarbox.queues SET rewinds = rewinds + 1 WHERE id = queue_
$$;
