-- What a receiver is told of a message.
CREATE OR REPLACE FUNCTION pillarbox.claim(
  queue_ integer, count_ integer, timeout_ bigint, token_ bytea,
  marks_ bigint[], rewinds_ bigint, since_ bigint, parked_ boolean, waits_ boolean
) RETURNS TABLE (
  id bigint, rank bigint, place bigint, enqueued_at bigint, deliveries integer, priority smallint,
  group_name text, head bytea, body bytea, attempts jsonb, source text, reason bytea, died_at bigint
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
-- Lease messages. The last row tells: minus one; the rewinds; until when all that was due has
-- happened; the time; 1 if no sender can have missed that the caller is parked; when something
-- will be due (in head's place as text), if nothing was found and the caller waits.
--
-- marks_: for each priority the rank below which, as far as the caller knows, nothing is ready: the
-- index entries of what was there are dead, and are not looked at until a vacuum removes them. A
-- message may still turn up below (a late commit, a claim that was rolled back), so the caller comes
-- without marks now and then. since_ is the same for deadlines.
#variable_conflict use_column
DECLARE
  q pillarbox.queues;
  now_ bigint;
  ids_ bigint[];
  picked bigint[] := '{}';
  grouped boolean;
  low bigint := 0;
  mark bigint;
  last bigint := 9223372036854775807;
  quiet integer := 0;
  due_ bigint;
  sifts boolean;
  found integer;
  tries integer := 0;
BEGIN
  q := pillarbox.find_queue(queue_);
  sifts := q.on_receive OR q.retention IS NOT NULL;
  IF parked_ AND pg_try_advisory_lock(1885500418, queue_) THEN
    PERFORM pg_advisory_unlock(1885500418, queue_);
    quiet := 1;
  END IF;
  now_ := pillarbox.clock();
  since_ := pillarbox.settle_all(q, since_, now_);
  IF q.redelivery = 'original' THEN  -- what was due may have gone to an earlier place
    q := pillarbox.find_queue(queue_);
  END IF;
  IF q.rewinds <> rewinds_ THEN
    marks_ := '{}';
  END IF;
  LOOP
    found := 0;
    low := 0;
    FOREACH mark IN ARRAY marks_ || last LOOP
      SELECT array_agg(x.id), bool_or(x.group_name IS NOT NULL) INTO ids_, grouped FROM (
        SELECT m.id, m.group_name FROM pillarbox.messages m
        WHERE m.queue = queue_ AND m.state = 0 AND m.rank >= low
          AND m.rank < CASE WHEN mark = last THEN last ELSE mark >> 55 << 55 END
        ORDER BY m.rank LIMIT count_ - cardinality(picked) FOR UPDATE SKIP LOCKED
      ) AS x;
      IF grouped THEN
        ids_ := pillarbox.with_groups(queue_, ids_, count_ - cardinality(picked));
      END IF;
      IF sifts AND ids_ IS NOT NULL THEN
        found := found + cardinality(ids_);
        ids_ := pillarbox.deliverable(q, ids_, now_);
      END IF;
      picked := picked || ids_;
      EXIT WHEN cardinality(picked) >= count_;
      low := mark;
    END LOOP;
    tries := tries + 1;
    EXIT WHEN cardinality(picked) > 0 OR found = 0 OR tries = 50;
  END LOOP;
  IF cardinality(picked) > 0 THEN
    RETURN QUERY
      UPDATE pillarbox.messages m
      SET state = 1, due = now_ + timeout_, leased_at = now_, token = token_
      WHERE m.id = ANY (picked)
      RETURNING m.id, m.rank, m.place, m.enqueued_at, m.deliveries, m.priority, m.group_name,
        m.head, m.body, m.attempts, m.source, m.reason, m.died_at;
    PERFORM pillarbox.arm(q, now_ + timeout_, now_);
    IF q.history THEN
      PERFORM pillarbox.record(q, 'leased', m.id, jsonb_build_object(
        'number', m.deliveries + 1, 'deadline', m.due))
        FROM pillarbox.messages m WHERE m.id = ANY (picked) ORDER BY m.rank, m.place;
    END IF;
  ELSIF waits_ THEN
    due_ := pillarbox.next_due(q, since_);
  END IF;
  RETURN QUERY SELECT -1::bigint, q.rewinds, since_, now_, quiet, 0::smallint,
    due_::text, NULL::bytea, NULL::bytea, NULL::jsonb, NULL, NULL::bytea, NULL::bigint;
END $$;

-- When a lease or delay of this queue ends, or a lease of one whose dead letters come here.
CREATE OR REPLACE FUNCTION pillarbox.next_due(q pillarbox.queues, since_ bigint)
RETURNS bigint LANGUAGE sql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
  SELECT min(first.due) FROM (
    SELECT q.id AS id UNION ALL SELECT s.id FROM pillarbox.queues s WHERE s.dead = q.id
  ) AS watched, LATERAL (
    SELECT m.due FROM pillarbox.messages m
    WHERE m.queue = watched.id AND m.state IN (1, 2, 3) AND m.due >= since_
    ORDER BY m.due LIMIT 1
  ) AS first
$$;

-- Of what was picked from the line, as many as there is room for. The one message of a group that
-- stands in line brings the next ones of its group with it.
CREATE OR REPLACE FUNCTION pillarbox.with_groups(queue_ integer, ids_ bigint[], room integer)
RETURNS bigint[] LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
  taken bigint[] := '{}';
  more bigint[];
  first pillarbox.messages;
BEGIN
  FOR first IN
    SELECT m.* FROM pillarbox.messages m WHERE m.id = ANY (ids_)
    ORDER BY array_position(ids_, m.id)
  LOOP
    EXIT WHEN cardinality(taken) >= room;
    taken := taken || first.id;
    IF first.group_name IS NOT NULL AND cardinality(taken) < room THEN
      WITH others AS (
        SELECT m.id FROM pillarbox.messages m
        WHERE m.queue = queue_ AND m.group_name = first.group_name AND m.state = 4
        ORDER BY m.place LIMIT room - cardinality(taken) FOR UPDATE
      ), moved AS (
        UPDATE pillarbox.messages m SET rank = first.rank FROM others WHERE m.id = others.id
        RETURNING m.id
      )
      SELECT array_agg(id) INTO more FROM moved;
      taken := taken || more;
    END IF;
  END LOOP;
  RETURN taken;
END $$;
