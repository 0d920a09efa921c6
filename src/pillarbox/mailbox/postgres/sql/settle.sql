-- Settle messages in flight. Each function returns which leases were valid, as positions in the
-- arrays of its arguments.

-- Lock the messages of these deliveries: group locks first, then rows in the order of their ids.
CREATE OR REPLACE FUNCTION pillarbox.lock_held(
  queue_ integer, ids_ bigint[], tokens_ bytea[], now_ bigint,
  OUT held bigint[], OUT live integer[]
) LANGUAGE plpgsql AS $$
DECLARE groups text[];
BEGIN
  SELECT array_agg(DISTINCT m.group_name) INTO groups
    FROM pillarbox.messages m WHERE m.id = ANY (ids_) AND m.group_name IS NOT NULL;
  IF groups IS NOT NULL THEN
    PERFORM pillarbox.lock_groups(queue_, groups);
  END IF;
  -- One lookup by id for each delivery, even if the planner sees a table full of dead rows: `+ 0`
  -- avoids the index on `due`, LATERAL avoids starting with the table.
  SELECT array_agg(m.id), array_agg(d.n::integer) INTO held, live
  FROM (
    SELECT * FROM unnest(ids_, tokens_) WITH ORDINALITY AS u (id, token, n) ORDER BY u.id
  ) AS d CROSS JOIN LATERAL (
    SELECT h.id FROM pillarbox.messages h
    WHERE h.id = d.id AND h.queue = queue_ AND h.state + 0 = 1 AND h.token = d.token
      AND h.due > now_
    FOR UPDATE
  ) AS m;
END $$;

-- The most frequent call, so each delivery is one plain statement: half the cost of `lock_held`.
CREATE OR REPLACE FUNCTION pillarbox.acknowledge(
  queue_ integer, ids_ bigint[], tokens_ bytea[], since_ bigint, OUT live_ integer[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  found_ record;
  q pillarbox.queues;
  now_ bigint := pillarbox.clock();
  order_ integer[] := '{1}';
  n integer;
  sent_at bigint;
  group_ text;
  ready_ integer := 0;
BEGIN
  SELECT s AS q, ARRAY(
      SELECT m.group_name FROM pillarbox.messages m
      WHERE m.id = ANY (ids_) AND m.group_name IS NOT NULL
    ) AS groups INTO found_ FROM pillarbox.queues s WHERE s.id = queue_;
  IF NOT FOUND THEN
    PERFORM pillarbox.no_queue();
  END IF;
  q := found_.q;
  IF found_.groups <> '{}' THEN
    PERFORM pillarbox.lock_groups(queue_, found_.groups);
  END IF;
  IF cardinality(ids_) > 1 THEN
    order_ := ARRAY(SELECT i FROM generate_subscripts(ids_, 1) AS i ORDER BY ids_[i]);
  END IF;
  FOREACH n IN ARRAY order_ LOOP
    DELETE FROM pillarbox.messages
      WHERE id = ids_[n] AND queue = queue_ AND state + 0 = 1 AND token = tokens_[n] AND due > now_
      RETURNING enqueued_at INTO sent_at;
    IF FOUND THEN
      live_ := live_ || n;
      IF q.history THEN
        PERFORM pillarbox.record(q, 'acknowledged', ids_[n], NULL, sent_at);
      END IF;
    END IF;
  END LOOP;
  IF found_.groups <> '{}' AND live_ IS NOT NULL THEN
    -- Settle what is due first: another group may have become ready before.
    PERFORM pillarbox.settle_all(q, since_, now_);
    FOR group_ IN SELECT DISTINCT g FROM unnest(found_.groups) AS g ORDER BY g LOOP
      ready_ := ready_ + pillarbox.line_up(queue_, group_);
    END LOOP;
    IF ready_ > 0 THEN
      PERFORM pillarbox.wake(queue_, ready_);
    END IF;
  END IF;
END $$;

-- how_: nack, release, front (release to the front of the line), reject.
CREATE OR REPLACE FUNCTION pillarbox.finish(
  queue_ integer, how_ text, delay_ bigint, reason_ bytea, ids_ bigint[], tokens_ bytea[],
  since_ bigint, OUT live_ integer[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  q pillarbox.queues;
  m pillarbox.messages;
  now_ bigint := pillarbox.clock();
  held_ bigint[];
  due_ bigint := CASE WHEN delay_ > 0 THEN now_ + delay_ ELSE 0 END;
  ready_ integer := 0;
BEGIN
  q := pillarbox.find_queue(queue_);
  PERFORM pillarbox.settle_all(q, since_, now_);
  SELECT held, live INTO held_, live_ FROM pillarbox.lock_held(queue_, ids_, tokens_, now_);
  IF held_ IS NULL THEN
    RETURN;
  END IF;
  FOR m IN
    SELECT h.* FROM pillarbox.messages h WHERE h.id = ANY (held_)
    ORDER BY array_position(ids_, h.id)
  LOOP
    IF how_ = 'nack' THEN
      ready_ := ready_ + pillarbox.fail(m, q, now_, 'nacked', due_, NULL);
    ELSIF how_ = 'reject' THEN
      ready_ := ready_ + pillarbox.fail(
        m, q, now_, 'rejected', 0, CASE WHEN q.dead IS NOT NULL THEN reason_ END);
    ELSE
      PERFORM pillarbox.record(q, 'released', m.id, NULL);
      ready_ := ready_ + pillarbox.give_back(m, q, how_ = 'front');
    END IF;
  END LOOP;
  IF due_ > 0 THEN
    PERFORM pillarbox.arm(q, due_, now_);
  END IF;
  IF ready_ > 0 THEN
    PERFORM pillarbox.wake(queue_, ready_);
  END IF;
END $$;

CREATE OR REPLACE FUNCTION pillarbox.extend(
  queue_ integer, timeout_ bigint, ids_ bigint[], tokens_ bytea[], OUT live_ integer[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  q pillarbox.queues;
  held_ bigint[];
  now_ bigint := pillarbox.clock();
BEGIN
  q := pillarbox.find_queue(queue_);
  SELECT held, live INTO held_, live_ FROM pillarbox.lock_held(queue_, ids_, tokens_, now_);
  UPDATE pillarbox.messages SET due = now_ + timeout_ WHERE id = ANY (held_);
  IF q.history THEN
    PERFORM pillarbox.record(q, 'extended', id, jsonb_build_object('deadline', now_ + timeout_))
      FROM unnest(held_) AS id;
  END IF;
  PERFORM pillarbox.arm(q, now_ + timeout_, now_);
END $$;

CREATE OR REPLACE FUNCTION pillarbox.purge(queue_ integer) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  q pillarbox.queues;
  count_ bigint;
BEGIN
  q := pillarbox.find_queue(queue_);
  PERFORM pillarbox.settle_all(q, 0, pillarbox.clock());
  WITH gone AS (DELETE FROM pillarbox.messages WHERE queue = queue_ RETURNING 1)
    SELECT count(*) INTO count_ FROM gone;
  DELETE FROM pillarbox.duplicates WHERE queue = queue_;
  DELETE FROM pillarbox.tenant_counts WHERE queue = queue_;
  PERFORM pillarbox.record(q, 'purged', NULL, NULL);
  RETURN count_;
END $$;

-- Delete messages by id, in any state. Returns how many were deleted.
CREATE OR REPLACE FUNCTION pillarbox.delete_messages(queue_ integer, ids_ bigint[]) RETURNS bigint
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  q pillarbox.queues;
  m pillarbox.messages;
  count_ bigint := 0;
  ready_ integer := 0;
  groups_ text[];
BEGIN
  q := pillarbox.find_queue(queue_);
  PERFORM pillarbox.settle_all(q, 0, pillarbox.clock());
  SELECT array_agg(DISTINCT group_name) INTO groups_ FROM pillarbox.messages
    WHERE id = ANY (ids_) AND queue = queue_ AND group_name IS NOT NULL;
  IF groups_ IS NOT NULL THEN
    PERFORM pillarbox.lock_groups(queue_, groups_);
  END IF;
  PERFORM FROM pillarbox.messages WHERE id = ANY (ids_) AND queue = queue_ ORDER BY id FOR UPDATE;
  FOR m IN SELECT * FROM pillarbox.messages WHERE id = ANY (ids_) AND queue = queue_ LOOP
    count_ := count_ + 1;
    PERFORM pillarbox.record(q, 'removed', m.id, NULL);
    DELETE FROM pillarbox.messages WHERE id = m.id;
    IF m.group_name IS NOT NULL THEN
      ready_ := ready_ + pillarbox.take_over(m);
    END IF;
  END LOOP;
  IF ready_ > 0 THEN
    PERFORM pillarbox.wake(queue_, ready_);
  END IF;
  RETURN count_;
END $$;

-- Continue with the group of a deleted message, at its place in the line if it was there.
CREATE OR REPLACE FUNCTION pillarbox.take_over(m pillarbox.messages) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE ready_ integer := pillarbox.line_up(m.queue, m.group_name);
BEGIN
  IF ready_ > 0 AND m.state = 0 THEN
    UPDATE pillarbox.messages SET rank = m.rank
      WHERE queue = m.queue AND group_name = m.group_name AND state = 0;
    PERFORM pillarbox.rewind(m.queue);
  END IF;
  RETURN ready_;
END $$;

-- Move ready messages to another queue, as new messages: to their source queue, or as given.
CREATE OR REPLACE FUNCTION pillarbox.redrive(queue_ integer, to_ text, ids_ bigint[])
RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  q pillarbox.queues;
  m pillarbox.messages;
  target integer;
  count_ bigint := 0;
BEGIN
  q := pillarbox.find_queue(queue_);
  PERFORM pillarbox.lock_groups(queue_, (
    SELECT array_agg(DISTINCT group_name) FROM pillarbox.messages
    WHERE id = ANY (ids_) AND queue = queue_ AND group_name IS NOT NULL));
  PERFORM FROM pillarbox.messages
    WHERE id = ANY (ids_) AND queue = queue_ AND state IN (0, 4, 5) ORDER BY id FOR UPDATE;
  FOR m IN
    SELECT * FROM pillarbox.messages
    WHERE id = ANY (ids_) AND queue = queue_ AND state IN (0, 4, 5)
    ORDER BY array_position(ids_, id)
  LOOP
    SELECT id INTO target FROM pillarbox.queues WHERE name = coalesce(to_, m.source);
    CONTINUE WHEN NOT FOUND OR target = queue_;
    PERFORM pillarbox.record(
      q, 'redriven', m.id, jsonb_build_object('to', coalesce(to_, m.source)));
    m.deliveries := 0;
    m.deliveries_before := 0;
    m.source := NULL;
    m.reason := NULL;
    m.died_at := NULL;
    UPDATE pillarbox.messages SET redriven_at = pillarbox.clock() WHERE id = m.id;
    PERFORM pillarbox.wake(target, pillarbox.move(m, target));
    IF m.group_name IS NOT NULL THEN
      PERFORM pillarbox.take_over(m);
    END IF;
    count_ := count_ + 1;
  END LOOP;
  RETURN count_;
END $$;
