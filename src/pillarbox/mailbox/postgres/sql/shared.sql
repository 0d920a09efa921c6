-- What brokers that share a database need beyond mailboxes.

-- The queue, if it still has this version.
CREATE OR REPLACE FUNCTION pillarbox.at_version(queue_ integer, version_ text) RETURNS integer
LANGUAGE plpgsql STABLE AS $$
DECLARE q pillarbox.queues := pillarbox.find_queue(queue_);
BEGIN
  IF version_ <> '' AND q.version IS DISTINCT FROM version_ THEN
    RAISE EXCEPTION 'the queue was changed' USING ERRCODE = 'PB404';
  END IF;
  RETURN q.id;
END $$;

-- Create a queue (known_ is NULL) or change one that still has the version known_. Answers false if
-- there is a queue already.
CREATE OR REPLACE FUNCTION pillarbox.configure_queue(
  name_ text, known_ text, version_ text, notes_ bytea, retention_ bigint, dead_ text,
  deliveries_ integer
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE q pillarbox.queues;
BEGIN
  IF known_ IS NULL THEN
    INSERT INTO pillarbox.queues (name, redelivery, on_receive) VALUES (name_, 'original', true)
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
  IF known_ IS NULL THEN  -- queues whose policy names a queue that was deleted, and is there again
    UPDATE pillarbox.queues SET dead = q.id, max_deliveries = wanted_deliveries
      WHERE wanted_dead = name_ AND dead IS NULL;
  END IF;
  RETURN true;
END $$;

-- Delete a queue. Whoever is parked on it wakes up and finds it gone.
CREATE OR REPLACE FUNCTION pillarbox.drop_shared(name_ text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pillarbox.wake(id, 128) FROM pillarbox.queues WHERE name = name_;
  PERFORM pillarbox.drop_queue(name_);
END $$;

-- Note a fact for so many seconds. Answers false if it is noted already.
CREATE OR REPLACE FUNCTION pillarbox.note_fact(name_ text, value_ text, seconds_ integer)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE now_ bigint := pillarbox.clock();
BEGIN
  DELETE FROM pillarbox.broker_facts WHERE expires_at <= now_;
  INSERT INTO pillarbox.broker_facts VALUES (name_, value_, now_ + seconds_ * 1000000::bigint)
    ON CONFLICT (name) DO NOTHING;
  RETURN FOUND;
END $$;

-- Of messages that a claim has picked and locked, those to deliver: what is too old is deleted, and
-- what has no deliveries left dies. A group that another transaction has locked is left alone.
CREATE OR REPLACE FUNCTION pillarbox.deliverable(
  q pillarbox.queues, ids_ bigint[], now_ bigint
) RETURNS bigint[] LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
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
      AND m.deliveries >= q.max_deliveries;
    IF NOT too_old AND NOT spent THEN
      kept := kept || m.id;
      CONTINUE;
    END IF;
    CONTINUE WHEN m.group_name IS NOT NULL AND NOT pg_try_advisory_xact_lock(
      1885500419, pillarbox.group_key(q.id, m.group_name));
    IF too_old THEN
      DELETE FROM pillarbox.messages WHERE id = m.id;
      PERFORM pillarbox.record(q, 'removed', m.id, NULL);
    ELSE
      m.source := q.name;
      m.reason := convert_to('delivered ' || m.deliveries || ' times', 'UTF8');
      m.died_at := now_;
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

-- Let a message be visible in so long, or at once, whoever holds it, or only for its holder.
-- Answers 1; 0 if it is not there, or not held; 2 if it would be held longer than longest_.
CREATE OR REPLACE FUNCTION pillarbox.change_visibility(
  queue_ integer, id_ bigint, token_ bytea, timeout_ bigint, longest_ bigint, holder_only_ boolean
) RETURNS integer LANGUAGE plpgsql AS $$
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
  holds := m.state = 1 AND m.token IS NOT DISTINCT FROM token_;
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
  ELSIF timeout_ > 0 THEN  -- in flight once more, and that is not counted
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
