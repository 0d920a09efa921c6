-- Send messages: all of them or none. Returns their ids; for a duplicate, that of the original.
--
-- settles_: settle what is due first, so that it precedes these. Not in a transaction of the
-- caller, which would keep the rows locked.
CREATE OR REPLACE FUNCTION pillarbox.send(
  queue_ integer, bodies_ bytea[], head_ bytea, priority_ integer, delay_ bigint, group_ text,
  deduplication_id_ text, deduplication_ bigint, since_ bigint, settles_ boolean,
  OUT ids_ bigint[], OUT until_ bigint
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  found_ record;
  q pillarbox.queues;
  now_ bigint := pillarbox.clock();
  count_ integer := cardinality(bodies_);
  state_ smallint;
  tenant_ text;
  known bigint;
BEGIN
  SELECT * INTO found_ FROM pillarbox.look_up(queue_, since_, now_);
  IF NOT FOUND THEN
    PERFORM pillarbox.no_queue();
  END IF;
  q := found_.q;
  until_ := CASE WHEN settles_ THEN now_ ELSE since_ END;
  IF settles_ AND found_.is_due THEN
    until_ := pillarbox.settle_all(q, since_, now_);
  END IF;
  IF deduplication_id_ IS NOT NULL THEN
    known := nextval('pillarbox.message_ids');
    ids_[1] := pillarbox.first_with(q.id, deduplication_id_, known, now_, deduplication_);
    IF ids_[1] <> known THEN
      RETURN;
    END IF;
  END IF;
  IF q.capacity IS NOT NULL THEN
    PERFORM pillarbox.make_room(q.id, count_);
  END IF;
  IF q.fair AND group_ IS NOT NULL THEN
    PERFORM pillarbox.admits_tenants(q.id);
    tenant_ := group_;
    group_ := NULL;
  END IF;
  IF group_ IS NOT NULL AND delay_ = 0 THEN
    PERFORM pillarbox.lock_groups(q.id, ARRAY[group_]);
  END IF;
  state_ := CASE
    WHEN delay_ > 0 THEN 2 WHEN tenant_ IS NOT NULL THEN 5 WHEN group_ IS NULL THEN 0 ELSE 4 END;
  FOR n IN coalesce(cardinality(ids_), 0) + 1..count_ LOOP  -- the group is already locked
    ids_[n] := nextval('pillarbox.message_ids');
  END LOOP;
  INSERT INTO pillarbox.messages (
    id, rank, place, due, leased_at, enqueued_at, queue, deliveries, priority, state,
    group_name, tenant, head, body
  )
  SELECT id, pillarbox.rank(priority_, (1::bigint << 54) + id), (1::bigint << 54) + id,
    now_ + delay_, 0, now_, queue_, 0, priority_, state_, group_, tenant_, head_, body
  FROM unnest(ids_, bodies_) AS sent (id, body);
  IF q.history THEN
    PERFORM pillarbox.record_sent(q, ids_, now_);
  END IF;
  IF delay_ > 0 THEN
    PERFORM pillarbox.arm(q, now_ + delay_, now_);
    RETURN;
  END IF;
  IF group_ IS NOT NULL THEN
    count_ := pillarbox.line_up(q.id, group_);
  END IF;
  IF pillarbox.is_awaited(queue_) THEN
    PERFORM pg_notify('pillarbox', queue_ || ' ' || count_);
  END IF;
END $$;

-- Return the id of the original message with this deduplication id: ours, or an earlier one.
CREATE OR REPLACE FUNCTION pillarbox.first_with(
  queue_ integer, deduplication_id_ text, id_ bigint, now_ bigint, deduplication_ bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE known bigint;
BEGIN
  DELETE FROM pillarbox.duplicates WHERE (queue, deduplication_id) IN (
    SELECT queue, deduplication_id FROM pillarbox.duplicates
    WHERE forget_at <= now_ ORDER BY forget_at LIMIT 10 FOR UPDATE SKIP LOCKED);
  INSERT INTO pillarbox.duplicates AS d VALUES (queue_, deduplication_id_, id_, now_ + deduplication_)
    ON CONFLICT (queue, deduplication_id)
    DO UPDATE SET message_id = excluded.message_id, forget_at = excluded.forget_at
    WHERE d.forget_at <= now_
    RETURNING message_id INTO known;
  IF NOT FOUND THEN
    SELECT message_id INTO known FROM pillarbox.duplicates
      WHERE queue = queue_ AND deduplication_id = deduplication_id_;
  END IF;
  RETURN known;
END $$;

-- Check the capacity for more messages, or raise. The queue is counted again when the free capacity
-- of the last count is used up; deletions since then only add to it.
CREATE OR REPLACE FUNCTION pillarbox.make_room(queue_ integer, count_ integer) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  q pillarbox.queues;
  held bigint;
BEGIN
  SELECT * INTO q FROM pillarbox.queues WHERE id = queue_ FOR NO KEY UPDATE;
  IF q.room < count_ THEN
    held := pillarbox.count_messages(queue_);
    q.room := q.capacity - held;
    IF q.room < count_ THEN
      RAISE EXCEPTION '%', held USING ERRCODE = 'PB507', DETAIL = q.capacity;
    END IF;
  END IF;
  UPDATE pillarbox.queues SET room = q.room - count_ WHERE id = queue_;
END $$;

CREATE OR REPLACE FUNCTION pillarbox.count_messages(queue_ integer) RETURNS bigint
LANGUAGE sql STABLE AS $$
  SELECT (SELECT count(*) FROM pillarbox.messages WHERE queue = queue_ AND state = 0)
    + (SELECT count(*) FROM pillarbox.messages WHERE queue = queue_ AND state IN (1, 2, 3))
    + (SELECT count(*) FROM pillarbox.messages WHERE queue = queue_ AND state = 4)
    + (SELECT count(*) FROM pillarbox.messages WHERE queue = queue_ AND state = 5)
$$;
