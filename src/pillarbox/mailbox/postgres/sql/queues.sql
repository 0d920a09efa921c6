-- Open and delete queues.

-- Open a queue. An existing queue keeps its settings, except dead letters and history.
CREATE OR REPLACE FUNCTION pillarbox.declare_queue(
  name_ text, create_ boolean, redelivery_ text, capacity_ bigint, history_ boolean,
  max_deliveries_ integer, dead_ text, fair_ boolean
) RETURNS TABLE (
  id integer, redelivery text, capacity bigint, history boolean, max_deliveries integer, dead text
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  q pillarbox.queues;
  target pillarbox.queues;
BEGIN
  PERFORM pillarbox.drop_queue(e.name) FROM (
    SELECT name FROM pillarbox.queues WHERE expires_at <= pillarbox.clock() AND name <> name_
    LIMIT 10 FOR UPDATE SKIP LOCKED) AS e;
  SELECT * INTO q FROM pillarbox.queues WHERE name = name_;
  IF NOT FOUND AND create_ THEN
    INSERT INTO pillarbox.queues (name, redelivery, capacity, fair, has_tenants)
      VALUES (name_, redelivery_, capacity_, fair_, fair_)
      ON CONFLICT (name) DO NOTHING;
    SELECT * INTO q FROM pillarbox.queues WHERE name = name_;
  END IF;
  IF q.id IS NULL THEN
    RETURN;
  END IF;
  IF q.history THEN
    PERFORM pillarbox.renumber_history(q);
  ELSIF create_ AND history_ THEN
    UPDATE pillarbox.queues SET history = true WHERE id = q.id;
  END IF;
  IF create_ AND dead_ IS NOT NULL THEN
    PERFORM pg_advisory_xact_lock(1885500420, 0);  -- one change of dead-letter queues at a time
    IF dead_ = name_ OR EXISTS (SELECT FROM pillarbox.queues WHERE dead = q.id) THEN
      RAISE EXCEPTION 'another queue, for a queue that is no dead-letter queue'
        USING ERRCODE = 'PB409';
    END IF;
    INSERT INTO pillarbox.queues (name) VALUES (dead_) ON CONFLICT (name) DO NOTHING;
    SELECT * INTO target FROM pillarbox.queues WHERE name = dead_;
    IF target.dead IS NOT NULL THEN
      RAISE EXCEPTION 'a queue with no dead-letter queue of its own' USING ERRCODE = 'PB409';
    END IF;
    UPDATE pillarbox.queues SET max_deliveries = max_deliveries_, dead = target.id
      WHERE id = q.id AND (max_deliveries, dead) IS DISTINCT FROM (max_deliveries_, target.id);
  END IF;
  RETURN QUERY
    SELECT s.id, s.redelivery, s.capacity, s.history, s.max_deliveries, d.name
    FROM pillarbox.queues s LEFT JOIN pillarbox.queues d ON d.id = s.dead WHERE s.id = q.id;
END $$;

-- Set a client's reply queue to expire, unless this is called again in time.
CREATE OR REPLACE FUNCTION pillarbox.expire_queue(name_ text, seconds_ integer) RETURNS void
LANGUAGE sql AS $$
  UPDATE pillarbox.queues SET expires_at = pillarbox.clock() + seconds_ * 1000000::bigint
  WHERE name = name_
$$;

-- Delete a queue and its messages; its dead-letter queue stays. Returns whether it existed.
CREATE OR REPLACE FUNCTION pillarbox.drop_queue(name_ text) RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE q pillarbox.queues;
BEGIN
  SELECT * INTO q FROM pillarbox.queues WHERE name = name_ FOR UPDATE;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM pillarbox.settle_all(q, 0, pillarbox.clock());
  UPDATE pillarbox.queues SET dead = NULL, max_deliveries = 0 WHERE dead = q.id;
  DELETE FROM pillarbox.messages WHERE queue = q.id;
  DELETE FROM pillarbox.events WHERE queue = q.id;
  DELETE FROM pillarbox.queues WHERE id = q.id;
  RETURN true;
END $$;
