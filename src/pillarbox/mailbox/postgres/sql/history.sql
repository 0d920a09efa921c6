-- The history of a queue: written in the transactions that change it, read by index.
--
-- An index is the id of the transaction << 20, plus the event's number in it. Everything with a
-- lower index than the oldest running transaction is complete, so a reader that continues from
-- there misses nothing, however late a transaction commits.

-- Return the index of the first of count events of this transaction.
CREATE OR REPLACE FUNCTION pillarbox.next_event(q pillarbox.queues, count_ integer) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  first_ bigint := (pg_current_xact_id()::text::bigint + q.history_base) << 20;
  next_ bigint;
BEGIN
  SELECT coalesce(max(index) + 1, first_) INTO next_ FROM pillarbox.events
    WHERE queue = q.id AND index >= first_ AND index < first_ + (1 << 20);
  IF next_ + count_ > first_ + (1 << 20) THEN
    RAISE EXCEPTION 'a transaction can record 1,048,576 events of a queue, and this is one more'
      USING ERRCODE = 'PB413';
  END IF;
  RETURN next_;
END $$;

-- Record an event of a message, or of the whole queue. If the message is deleted already, the caller
-- tells when it was sent.
CREATE OR REPLACE FUNCTION pillarbox.record(
  q pillarbox.queues, kind_ text, message_id_ bigint, fields_ jsonb, sent_at_ bigint DEFAULT NULL
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF q.history THEN
    INSERT INTO pillarbox.events (index, at, enqueued_at, message_id, queue, kind, fields)
      VALUES (
        pillarbox.next_event(q, 1), pillarbox.clock(),
        coalesce(sent_at_, (SELECT enqueued_at FROM pillarbox.messages WHERE id = message_id_)),
        message_id_, q.id, kind_, fields_);
  END IF;
END $$;

CREATE OR REPLACE FUNCTION pillarbox.record_sent(
  q pillarbox.queues, ids_ bigint[], now_ bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE first_ bigint := pillarbox.next_event(q, cardinality(ids_));
BEGIN
  INSERT INTO pillarbox.events
    (index, at, enqueued_at, message_id, queue, kind, fields, head, body)
  SELECT first_ - 1 + row_number() OVER (ORDER BY m.id), now_, m.enqueued_at, m.id, q.id,
    CASE m.state WHEN 2 THEN 'scheduled' ELSE 'sent' END,
    jsonb_build_object('priority', m.priority, 'due', m.due, 'group', coalesce(m.group_name, m.tenant)),
    m.head, m.body
  FROM pillarbox.messages m WHERE m.id = ANY (ids_);
END $$;

-- Return the readable range of a queue's history: the first index, and the end after the last
-- complete event. Events before lost_ are gone. No row: the queue does not exist.
CREATE OR REPLACE FUNCTION pillarbox.history_bounds(name_ text)
RETURNS TABLE (queue_ integer, kept_ boolean, lost_ bigint, first_ bigint, end_ bigint)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  q pillarbox.queues;
  complete_ bigint;
BEGIN
  SELECT * INTO q FROM pillarbox.queues WHERE name = name_;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  complete_ := (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + q.history_base) << 20;
  queue_ := q.id;
  kept_ := q.history;
  lost_ := q.trimmed;
  SELECT coalesce(max(index) + 1, q.trimmed) INTO end_
    FROM pillarbox.events WHERE queue = q.id AND index < complete_;
  SELECT coalesce(min(index), end_) INTO first_
    FROM pillarbox.events WHERE queue = q.id AND index < end_;
  RETURN NEXT;
END $$;

-- Delete the events before an index and record that. Returns how many were deleted.
CREATE OR REPLACE FUNCTION pillarbox.trim_history(name_ text, before_ bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  bounds record;
  count_ bigint;
  last_ bigint;
BEGIN
  SELECT * INTO bounds FROM pillarbox.history_bounds(name_);
  WITH gone AS (
    DELETE FROM pillarbox.events
    WHERE queue = bounds.queue_ AND index < least(before_, bounds.end_) RETURNING index
  )
  SELECT count(*), max(index) INTO count_, last_ FROM gone;
  UPDATE pillarbox.queues SET trimmed = greatest(trimmed, last_ + 1)
    WHERE id = bounds.queue_ AND count_ > 0;
  RETURN count_;
END $$;

-- A database that was restored from a dump restarts its transaction ids. Continue after the
-- existing events.
CREATE OR REPLACE FUNCTION pillarbox.renumber_history(q pillarbox.queues) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  last_ bigint;
  now_ pg_snapshot;
BEGIN
  SELECT max(index) >> 20, pg_current_snapshot() INTO last_, now_
    FROM pillarbox.events WHERE queue = q.id;
  IF last_ >= pg_snapshot_xmax(now_)::text::bigint + q.history_base THEN
    UPDATE pillarbox.queues SET history_base = last_ + 1 - pg_snapshot_xmin(now_)::text::bigint
      WHERE id = q.id AND history_base = q.history_base;
  END IF;
END $$;
