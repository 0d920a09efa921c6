-- Functions for brokers that share a database.

-- Return the queue if it still has this version; raise otherwise.
CREATE OR REPLACE FUNCTION pillarbox.at_version(queue_ integer, version_ text) RETURNS integer
LANGUAGE plpgsql STABLE AS $$
DECLARE q pillarbox.queues := pillarbox.find_queue(queue_);
BEGIN
  IF version_ <> '' AND q.version IS DISTINCT FROM version_ THEN
    RAISE EXCEPTION 'the queue was changed' USING ERRCODE = 'PB404';
  END IF;
  RETURN q.id;
END $$;

-- Create a queue (known_ is NULL) or change one that still has the version known_. Returns false if
-- the queue already exists.
CREATE OR REPLACE FUNCTION pillarbox.configure_queue(
  name_ text, known_ text, version_ text, notes_ bytea, retention_ bigint, dead_ text,
  deliveries_ integer, fair_ boolean
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE q pillarbox.queues;
BEGIN
  IF known_ IS NULL THEN
    INSERT INTO pillarbox.queues (name, redelivery, on_receive, fair)
      VALUES (name_, 'original', true, fair_)
      ON CONFLICT (name) DO NOTHING;
    IF NOT FOUND THEN
      RETURN false;
    END IF;
  END IF;
  SELECT * INTO q FROM pillarbox.queues WHERE name = name_ FOR UPDATE;
  IF NOT FOUND OR (known_ <> '' AND q.version IS DISTINCT FROM known_) THEN
    RAISE EXCEPTION 'the queue was changed' USING ERRCODE = 'PB404';
  END IF;
  UPDATE pillarbox.queues SET
    version = version_, notes = notes_, retention = retention_,
    wanted_dead = dead_, wanted_deliveries = deliveries_, max_deliveries = deliveries_,
    dead = (SELECT id FROM pillarbox.queues WHERE name = dead_)
    WHERE id = q.id;
  IF known_ IS NULL THEN  -- adopt queues whose policy names this queue, which was deleted before
    UPDATE pillarbox.queues SET dead = q.id, max_deliveries = wanted_deliveries
      WHERE wanted_dead = name_ AND dead IS NULL AND NOT pillarbox.leads_to(q.id, id);
  END IF;
  RETURN true;
END $$;

-- Return whether dead letters of a queue reach another, directly or through others.
CREATE OR REPLACE FUNCTION pillarbox.leads_to(queue_ integer, end_ integer) RETURNS boolean
LANGUAGE sql STABLE AS $$
  WITH RECURSIVE passed AS (
    SELECT dead FROM pillarbox.queues WHERE id = queue_
    UNION
    SELECT q.dead FROM pillarbox.queues q JOIN passed p ON q.id = p.dead
  )
  SELECT EXISTS (SELECT FROM passed WHERE dead = end_)
$$;

-- Delete a queue. Wake parked receivers, which find it deleted.
CREATE OR REPLACE FUNCTION pillarbox.drop_shared(name_ text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pillarbox.wake(id, 128) FROM pillarbox.queues WHERE name = name_;
  PERFORM pillarbox.drop_queue(name_);
END $$;

-- Store a value for some seconds. Returns false if another value is already stored.
CREATE OR REPLACE FUNCTION pillarbox.note_fact(name_ text, value_ text, seconds_ integer)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE now_ bigint := pillarbox.clock();
BEGIN
  DELETE FROM pillarbox.broker_facts WHERE expires_at <= now_;
  INSERT INTO pillarbox.broker_facts VALUES (name_, value_, now_ + seconds_ * 1000000::bigint)
    ON CONFLICT (name) DO NOTHING;
  RETURN FOUND OR EXISTS (
    SELECT FROM pillarbox.broker_facts WHERE name = name_ AND value = value_);
END $$;

-- Return whether the limit of messages in flight is reached. Counting also scans recently settled
-- ones, so a count is cached for a second, unless it is near the limit or the limit is small.
CREATE OR REPLACE FUNCTION pillarbox.is_crowded(queue_ integer, max_ integer, now_ bigint)
RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  small CONSTANT integer := 1000;
  leases_ bigint;
BEGIN
  IF max_ > small AND EXISTS (
    SELECT FROM pillarbox.lease_counts
    WHERE queue = queue_ AND counted_at BETWEEN now_ - 1000000 AND now_
      AND leases < max_ * 9::bigint / 10
  ) THEN
    RETURN false;
  END IF;
  SELECT count(*) INTO leases_ FROM (
    SELECT FROM pillarbox.messages
    WHERE queue = queue_ AND state IN (1, 2, 3) AND state = 1 AND due > now_ LIMIT max_
  ) AS leased;
  IF max_ > small THEN
    INSERT INTO pillarbox.lease_counts VALUES (queue_, now_, leases_)
      ON CONFLICT (queue) DO UPDATE SET counted_at = now_, leases = leases_
      WHERE lease_counts.counted_at NOT BETWEEN now_ - 1000000 AND now_;
  END IF;
  RETURN leases_ >= max_;
END $$;

-- Return the messages that this attempt id was given, if it still holds them all. Locks them.
CREATE OR REPLACE FUNCTION pillarbox.attempted(
  queue_ integer, attempt_ text, now_ bigint, OUT ids bigint[], OUT token bytea
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  known pillarbox.attempts;
  held bigint;
BEGIN
  SELECT * INTO known FROM pillarbox.attempts
    WHERE queue = queue_ AND attempt = attempt_ AND forget_at > now_;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  PERFORM FROM pillarbox.messages m WHERE m.id = ANY (known.ids) ORDER BY m.id FOR UPDATE;
  SELECT count(*) INTO held FROM pillarbox.messages m
    WHERE m.id = ANY (known.ids) AND m.queue = queue_ AND m.state = 1 AND m.token = known.token
      AND m.due > now_;
  IF held = cardinality(known.ids) THEN
    ids := known.ids;
    token := known.token;
  END IF;
END $$;

CREATE OR REPLACE FUNCTION pillarbox.remember_attempt(
  queue_ integer, attempt_ text, token_ bytea, ids_ bigint[], now_ bigint
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM pillarbox.attempts WHERE (queue, attempt) IN (
    SELECT queue, attempt FROM pillarbox.attempts
    WHERE forget_at <= now_ ORDER BY forget_at LIMIT 10 FOR UPDATE SKIP LOCKED);
  INSERT INTO pillarbox.attempts VALUES (queue_, attempt_, now_ + 300000000, token_, ids_)
    ON CONFLICT (queue, attempt) DO UPDATE
    SET forget_at = excluded.forget_at, token = excluded.token, ids = excluded.ids;
END $$;

-- Send messages, each with its own group and deduplication id: all of them or none.
-- Returns their ids; for a duplicate, that of the original.
CREATE OR REPLACE FUNCTION pillarbox.send_each(
  queue_ integer, bodies_ bytea[], heads_ bytea[], priority_ integer, delay_ bigint,
  groups_ text[], deduplication_ids_ text[], deduplication_ bigint, since_ bigint,
  OUT ids_ bigint[], OUT until_ bigint
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
  q pillarbox.queues;
  now_ bigint := pillarbox.clock();
  fresh bigint[];
  n_ integer;
  group_ text;
  ready_ integer := 0;
BEGIN
  q := pillarbox.find_queue(queue_);
  until_ := pillarbox.settle_all(q, since_, now_);
  SELECT array_agg(nextval('pillarbox.message_ids')) INTO fresh
    FROM generate_subscripts(bodies_, 1);
  ids_ := fresh;
  -- In the order of the deduplication ids, so that two batches with the same ids can't deadlock.
  FOR n_ IN SELECT n FROM generate_subscripts(bodies_, 1) AS n ORDER BY deduplication_ids_[n], n LOOP
    ids_[n_] := pillarbox.first_with(
      q.id, deduplication_ids_[n_], fresh[n_], now_, deduplication_);
  END LOOP;
  IF q.capacity IS NOT NULL THEN
    PERFORM pillarbox.make_room(q.id, cardinality(bodies_));
  END IF;
  IF delay_ = 0 THEN
    PERFORM pillarbox.lock_groups(q.id, groups_);
  END IF;
  INSERT INTO pillarbox.messages (
    id, rank, place, due, leased_at, enqueued_at, queue, deliveries, priority, state,
    group_name, head, body
  )
  SELECT fresh[n], pillarbox.rank(priority_, (1::bigint << 54) + fresh[n]),
    (1::bigint << 54) + fresh[n], now_ + delay_, 0, now_, queue_, 0, priority_,
    CASE WHEN delay_ > 0 THEN 2 ELSE 4 END, groups_[n], heads_[n], bodies_[n]
  FROM generate_subscripts(bodies_, 1) AS n WHERE ids_[n] = fresh[n];
  IF q.history THEN
    PERFORM pillarbox.record_sent(q, fresh, now_);
  END IF;
  IF delay_ > 0 THEN
    PERFORM pillarbox.arm(q, now_ + delay_, now_);
    RETURN;
  END IF;
  FOR group_ IN
    SELECT g FROM unnest(groups_) WITH ORDINALITY AS u (g, n) GROUP BY g ORDER BY min(n)
  LOOP
    ready_ := ready_ + pillarbox.line_up(q.id, group_);
  END LOOP;
  IF ready_ > 0 THEN
    PERFORM pillarbox.wake(q.id, ready_);
  END IF;
END $$;

-- Delete messages past the queue's retention, from the head of each priority.
-- Returns how many were deleted.
CREATE OR REPLACE FUNCTION pillarbox.sweep(queue_ integer, most_ integer) RETURNS bigint
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
  q pillarbox.queues;
  now_ bigint := pillarbox.clock();
  low bigint := 0;
  head_ bigint;
  ids_ bigint[];
  count_ bigint := 0;
BEGIN
  q := pillarbox.find_queue(queue_);
  IF q.retention IS NOT NULL AND q.has_tenants THEN
    SELECT array_agg(x.id) INTO ids_ FROM (
      SELECT m.id FROM pillarbox.first_ready(queue_) AS f CROSS JOIN LATERAL (
        SELECT t.id, coalesce(t.redriven_at, t.enqueued_at) AS sent_at FROM pillarbox.messages t
        WHERE t.queue = queue_ AND t.state = 5 AND t.tenant = f.tenant
          AND t.rank BETWEEN f.rank AND pillarbox.last_rank(f.rank)
        ORDER BY t.rank LIMIT most_
      ) AS m WHERE m.sent_at + q.retention <= now_ LIMIT most_
    ) AS x;
    IF ids_ IS NOT NULL THEN  -- otherwise it would still settle what is due, and lock it
      count_ := pillarbox.delete_messages(queue_, ids_);
    END IF;
  END IF;
  WHILE q.retention IS NOT NULL AND count_ < most_ LOOP
    SELECT min(x.rank), array_agg(x.id) FILTER (WHERE x.sent_at + q.retention <= now_)
      INTO head_, ids_
    FROM (
      SELECT rank, id, coalesce(redriven_at, enqueued_at) AS sent_at FROM pillarbox.messages
      WHERE queue = queue_ AND state = 0 AND rank >= low ORDER BY rank LIMIT 100
    ) AS x;
    EXIT WHEN head_ IS NULL;
    IF ids_ IS NOT NULL THEN
      count_ := count_ + pillarbox.delete_messages(queue_, ids_);
    ELSE
      EXIT WHEN head_ >> 55 = 255;
      low := ((head_ >> 55) + 1) << 55;  -- the next priority
    END IF;
  END LOOP;
  RETURN count_;
END $$;

-- Pause or resume delivery from a queue.
CREATE OR REPLACE FUNCTION pillarbox.pause_queue(name_ text, paused_ boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE queue_ integer;
BEGIN
  UPDATE pillarbox.queues SET paused = paused_ WHERE name = name_ RETURNING id INTO queue_;
  IF NOT paused_ AND queue_ IS NOT NULL THEN
    PERFORM pillarbox.wake(queue_, 128);
  END IF;
END $$;

-- Record a broker's heartbeat, valid for some seconds (0: it stops). Returns all live brokers.
CREATE OR REPLACE FUNCTION pillarbox.beat(id_ text, seconds_ integer, said_ text)
RETURNS TABLE (id text, seen bigint, said text) LANGUAGE plpgsql AS $$
DECLARE
  now_ bigint := pillarbox.clock();
  prefix CONSTANT text := 'broker ';
BEGIN
  DELETE FROM pillarbox.broker_facts
    WHERE expires_at <= now_ OR (seconds_ = 0 AND name = prefix || id_);
  IF seconds_ > 0 THEN
    INSERT INTO pillarbox.broker_facts
      VALUES (prefix || id_, now_ || ' ' || said_, now_ + seconds_ * 1000000::bigint)
      ON CONFLICT (name) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at;
  END IF;
  RETURN QUERY
    SELECT substr(f.name, length(prefix) + 1), split_part(f.value, ' ', 1)::bigint,
      substr(f.value, strpos(f.value, ' ') + 1)
    FROM pillarbox.broker_facts f WHERE starts_with(f.name, prefix) AND f.expires_at > now_;
END $$;

-- Set a value shared by all brokers if it is still before_. Returns whether it was; also true for a
-- repeated call whose response was lost.
CREATE OR REPLACE FUNCTION pillarbox.keep_if(name_ text, before_ text, after_ text) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  IF before_ IS NULL THEN
    INSERT INTO pillarbox.broker_facts VALUES (name_, after_) ON CONFLICT (name) DO NOTHING;
  ELSE
    UPDATE pillarbox.broker_facts SET value = after_ WHERE name = name_ AND value = before_;
  END IF;
  RETURN FOUND OR EXISTS (
    SELECT FROM pillarbox.broker_facts WHERE name = name_ AND value = after_);
END $$;

-- Return the messages to deliver of those that a claim has picked and locked: delete those past
-- their retention, dead-letter those with no deliveries left. Skip groups that others have locked.
CREATE OR REPLACE FUNCTION pillarbox.deliverable(
  q pillarbox.queues, ids_ bigint[], now_ bigint
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
  m pillarbox.messages;
  kept bigint[] := '{}';
  too_old boolean;
  spent boolean;
BEGIN
  FOR m IN
    SELECT * FROM pillarbox.messages WHERE id = ANY (ids_) ORDER BY array_position(ids_, id)
  LOOP
    too_old := coalesce(coalesce(m.redriven_at, m.enqueued_at) + q.retention <= now_, false);
    spent := q.on_receive AND q.dead IS NOT NULL AND q.max_deliveries > 0
      AND m.deliveries - m.deliveries_before >= q.max_deliveries;
    IF NOT too_old AND NOT spent THEN
      kept := kept || m.id;
      CONTINUE;
    END IF;
    CONTINUE WHEN m.group_name IS NOT NULL AND NOT pg_try_advisory_xact_lock(
      1885500419, pillarbox.group_key(q.id, m.group_name));
    IF too_old THEN
      PERFORM pillarbox.record(q, 'removed', m.id, NULL);
      DELETE FROM pillarbox.messages WHERE id = m.id;
    ELSE
      m.source := q.name;
      m.reason := convert_to('delivered ' || m.deliveries || ' times', 'UTF8');
      m.died_at := now_;
      m.deliveries_before := m.deliveries;
      PERFORM pillarbox.wake(q.dead, pillarbox.move(m, q.dead));
      PERFORM pillarbox.record(q, 'died', m.id, jsonb_build_object(
        'outcome', 'received', 'reason', encode(m.reason, 'base64'),
        'to', (SELECT name FROM pillarbox.queues WHERE id = q.dead)));
    END IF;
    IF m.group_name IS NOT NULL THEN
      PERFORM pillarbox.take_over(m);
    END IF;
  END LOOP;
  RETURN kept;
END $$;

-- Change when a message becomes visible: after a timeout or immediately, for any caller or only for
-- its holder. Returns 1; 0 if it does not exist or is not held; 2 if held longer than longest_.
CREATE OR REPLACE FUNCTION pillarbox.change_visibility(
  queue_ integer, id_ bigint, token_ bytea, timeout_ bigint, longest_ bigint, holder_only_ boolean
) RETURNS integer LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  q pillarbox.queues;
  m pillarbox.messages;
  now_ bigint := pillarbox.clock();
  due_ bigint := now_ + timeout_;
  ready_ integer := 0;
  holds boolean;
BEGIN
  q := pillarbox.find_queue(queue_);
  PERFORM pillarbox.settle_all(q, 0, now_);
  SELECT * INTO m FROM pillarbox.messages WHERE id = id_ AND queue = queue_;
  IF m.group_name IS NOT NULL THEN
    PERFORM pillarbox.lock_groups(queue_, ARRAY[m.group_name]);
  END IF;
  SELECT * INTO m FROM pillarbox.messages WHERE id = id_ AND queue = queue_ FOR UPDATE;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  holds := m.state = 1 AND m.token IS NOT DISTINCT FROM token_ AND m.due > now_;
  IF holder_only_ AND NOT holds THEN
    RETURN 0;
  END IF;
  IF holds AND timeout_ > 0 AND due_ > m.leased_at + longest_ THEN
    RETURN 2;
  END IF;
  IF m.state = 1 AND timeout_ = 0 THEN
    ready_ := pillarbox.fail(m, q, now_, 'nacked', 0, NULL);
  ELSIF m.state = 2 AND timeout_ = 0 THEN
    ready_ := pillarbox.join_line(m, queue_, pillarbox.next_place());
  ELSIF m.state = 3 AND timeout_ = 0 THEN
    ready_ := pillarbox.give_back(m, q, false);
  ELSIF m.state IN (1, 2, 3) THEN
    UPDATE pillarbox.messages SET due = due_ WHERE id = id_;
  ELSIF timeout_ > 0 THEN  -- in flight again, without counting a delivery
    UPDATE pillarbox.messages SET
      state = 1, due = due_, leased_at = now_, token = NULL, deliveries = greatest(deliveries - 1, 0)
      WHERE id = id_;
  END IF;
  IF timeout_ > 0 THEN
    PERFORM pillarbox.arm(q, due_, now_);
  END IF;
  IF ready_ > 0 THEN
    PERFORM pillarbox.wake(queue_, ready_);
  END IF;
  RETURN 1;
END $$;
