-- Who stands in line, in which order, and who is woken for it.

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

CREATE OR REPLACE FUNCTION pillarbox.find_queue(queue_ integer) RETURNS pillarbox.queues
LANGUAGE plpgsql STABLE AS $$
DECLARE q pillarbox.queues;
BEGIN
  SELECT * INTO q FROM pillarbox.queues WHERE id = queue_;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the queue was deleted' USING ERRCODE = 'PB404';
  END IF;
  RETURN q;
END $$;

-- Notify parked receivers that messages are ready, or that something will be due soon. Nobody is
-- notified while no process is parked: NOTIFY serialises commits.
--
-- A process parks in this order: it locks (1885500417, queue) shared, it looks whether anyone holds
-- (1885500418, queue), it looks for messages. A sender locks the second, then looks at the first. So
-- one of the two sees the other, whatever the order of their commits.
CREATE OR REPLACE FUNCTION pillarbox.wake(queue_ integer, count_ integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(1885500418, queue_);
  IF pg_try_advisory_lock(1885500417, queue_) THEN
    PERFORM pg_advisory_unlock(1885500417, queue_);
  ELSE
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

-- A group with something to deliver, and nothing that holds it, stands at the end of the line.
-- The caller has its lock. Answers how many messages became ready.
CREATE OR REPLACE FUNCTION pillarbox.line_up(queue_ integer, group_ text) RETURNS integer
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM pillarbox.messages
    WHERE queue = queue_ AND group_name = group_ AND state IN (0, 1, 3) LIMIT 1;
  IF FOUND THEN
    RETURN 0;
  END IF;
  UPDATE pillarbox.messages
    SET state = 0, rank = pillarbox.rank(priority, pillarbox.next_place())
    WHERE id = (
      SELECT id FROM pillarbox.messages
      WHERE queue = queue_ AND group_name = group_ AND state = 4 ORDER BY place LIMIT 1
    );
  RETURN CASE WHEN FOUND THEN 1 ELSE 0 END;
END $$;

-- Put a message in line, or in its group's; the caller has the group's lock.
CREATE OR REPLACE FUNCTION pillarbox.join_line(
  m pillarbox.messages, queue_ integer, place_ bigint
) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
  UPDATE pillarbox.messages SET
    queue = queue_, place = place_, rank = pillarbox.rank(m.priority, place_),
    state = CASE WHEN m.group_name IS NULL THEN 0 ELSE 4 END,
    due = 0, leased_at = 0, token = NULL,
    deliveries = m.deliveries, attempts = m.attempts,
    source = m.source, reason = m.reason, died_at = m.died_at
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
