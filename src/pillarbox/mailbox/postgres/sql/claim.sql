-- A message as a receiver gets it.
CREATE OR REPLACE FUNCTION pillarbox.claim(
  queue_ integer, count_ integer, timeout_ bigint, token_ bytea,
  marks_ bigint[], rewinds_ bigint, since_ bigint, parked_ boolean, waits_ boolean,
  in_flight_max_ integer DEFAULT NULL, attempt_ text DEFAULT NULL
) RETURNS TABLE (
  id bigint, rank bigint, place bigint, enqueued_at bigint, deliveries integer, priority smallint,
  group_name text, head bytea, body bytea, attempts jsonb, source text, reason bytea, died_at bigint
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
-- Lease messages. The last row contains: minus one; the rewinds; the time up to which everything
-- due is settled; the time; 1 if no sender can have missed that the caller is parked; 1 if the
-- limit of messages in flight is reached; when the next timer is due (in column group), if nothing
-- was found and the caller waits; the token (in column reason), if this attempt is a repetition and
-- gets the same messages again.
--
-- marks_: for each priority the low-water mark: the rank below which the caller knows of nothing
-- ready. Index entries below it are dead, and skipped until a vacuum removes them. A message may
-- still appear below (a late commit, a claim that was rolled back), so the caller calls without
-- marks now and then. since_ is the same for deadlines. In a queue with tenants the rank of a
-- message is its position in the result.
#variable_conflict use_column
DECLARE
  found_ record;
  q pillarbox.queues;
  now_ bigint;
  picked bigint[];
  grouped boolean;
  quiet integer := 0;
  sifts boolean;
  crowded boolean := false;
  tries integer := 0;
  seen integer;
  again bytea;
BEGIN
  IF parked_ AND pg_try_advisory_lock(1885500418, queue_)
    AND pg_advisory_unlock(1885500418, queue_)
  THEN
    quiet := 1;
  END IF;
  now_ := pillarbox.clock();
  SELECT * INTO found_ FROM pillarbox.look_up(queue_, since_, now_);
  IF NOT FOUND THEN
    PERFORM pillarbox.no_queue();
  END IF;
  q := found_.q;
  IF NOT found_.is_due THEN
    since_ := now_;
  ELSE
    since_ := pillarbox.settle_all(q, since_, now_);
    q := pillarbox.find_queue(queue_);  -- settled messages may have an earlier place
  END IF;
  sifts := q.on_receive OR q.retention IS NOT NULL;
  IF q.rewinds <> rewinds_ OR q.has_tenants THEN
    marks_ := '{}';
  END IF;
  IF attempt_ IS NOT NULL THEN
    SELECT ids, token INTO picked, again FROM pillarbox.attempted(queue_, attempt_, now_);
  END IF;
  IF again IS NULL AND in_flight_max_ IS NOT NULL THEN
    crowded := pillarbox.is_crowded(queue_, in_flight_max_, now_);
  END IF;
  WHILE again IS NULL AND NOT crowded AND NOT q.paused LOOP
    IF q.has_tenants THEN
      picked := pillarbox.in_turn(q, count_, true);
    ELSE
      -- Scan from each mark to the next priority that has one.
      SELECT array_agg(x.id), bool_or(x.group_name IS NOT NULL) INTO picked, grouped FROM (
        SELECT m.id, m.group_name
        FROM generate_series(0, cardinality(marks_)) AS n CROSS JOIN LATERAL (
          SELECT r.id, r.group_name FROM pillarbox.messages r
          WHERE r.queue = queue_ AND r.state = 0 AND r.rank >= coalesce(marks_[n], 0)
            AND r.rank < coalesce(marks_[n + 1] >> 55 << 55, 9223372036854775807)
          ORDER BY r.rank LIMIT count_ FOR UPDATE SKIP LOCKED
        ) AS m LIMIT count_
      ) AS x;
    END IF;
    IF grouped THEN
      seen := cardinality(picked);
      picked := pillarbox.with_groups(q, picked, count_);
      IF cardinality(picked) < seen THEN
        quiet := 0;  -- a group is locked: retry there soon
        q.rewinds := -1;
      END IF;
    END IF;
    seen := coalesce(cardinality(picked), 0);
    IF sifts AND seen > 0 THEN
      picked := pillarbox.deliverable(q, picked, now_);
    END IF;
    tries := tries + 1;
    EXIT WHEN seen = 0 OR NOT sifts OR cardinality(picked) > 0 OR tries = 50;
  END LOOP;
  IF cardinality(picked) > 0 THEN
    RETURN QUERY
      UPDATE pillarbox.messages m
      SET state = 1, due = now_ + timeout_, token = coalesce(again, token_),
        leased_at = CASE WHEN again IS NULL THEN now_ ELSE m.leased_at END
      WHERE m.id = ANY (picked)
      RETURNING m.id, CASE WHEN q.has_tenants THEN array_position(picked, m.id) ELSE m.rank END,
        m.place, m.enqueued_at, m.deliveries, m.priority, coalesce(m.group_name, m.tenant), m.head,
        m.body, m.attempts, m.source, m.reason, m.died_at;
    IF timeout_ < 10000000 THEN
      PERFORM pillarbox.arm(q, now_ + timeout_, now_);
    END IF;
    IF attempt_ IS NOT NULL AND again IS NULL THEN
      PERFORM pillarbox.remember_attempt(queue_, attempt_, token_, picked, now_);
    END IF;
    IF q.history THEN
      PERFORM pillarbox.record(q, 'leased', m.id, jsonb_build_object(
        'number', m.deliveries + 1, 'deadline', m.due))
        FROM pillarbox.messages m WHERE m.id = ANY (picked) ORDER BY m.rank, m.place;
    END IF;
  ELSIF waits_ THEN
    group_name := pillarbox.next_due(q, since_);
  END IF;
  -- A caller that scanned nothing must not advance its rewinds. With tenants there is no low-water
  -- mark.
  id := -1;
  rank := CASE
    WHEN q.has_tenants THEN -1
    WHEN crowded OR q.paused OR again IS NOT NULL THEN rewinds_
    ELSE q.rewinds
  END;
  place := since_;
  enqueued_at := now_;
  deliveries := quiet;
  priority := crowded::integer;
  reason := again;
  RETURN NEXT;
END $$;

-- Return when the next lease or delay of this queue ends, or a lease of one of its source queues.
CREATE OR REPLACE FUNCTION pillarbox.next_due(q pillarbox.queues, since_ bigint)
RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT min(first.due) FROM (
    SELECT q.id AS id UNION ALL SELECT s.id FROM pillarbox.queues s WHERE s.dead = q.id
  ) AS watched, LATERAL (
    SELECT m.due FROM pillarbox.messages m
    WHERE m.queue = watched.id AND m.state IN (1, 2, 3) AND m.due >= since_
    ORDER BY m.due LIMIT 1
  ) AS first
$$;

-- Return as many of the picked messages as fit. The one message of a group in the line brings the
-- next ones of its group with it: with redelivery 'original', only those before all held messages
-- of the group. Then a group that another transaction has locked is skipped.
CREATE OR REPLACE FUNCTION pillarbox.with_groups(q pillarbox.queues, ids_ bigint[], room integer)
RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
  original boolean := q.redelivery = 'original';
  taken bigint[] := '{}';
  more bigint[];
  held bigint;
  first pillarbox.messages;
BEGIN
  FOR first IN
    SELECT m.* FROM pillarbox.messages m WHERE m.id = ANY (ids_)
    ORDER BY array_position(ids_, m.id)
  LOOP
    EXIT WHEN cardinality(taken) >= room;
    IF first.group_name IS NULL THEN
      taken := taken || first.id;
      CONTINUE;
    END IF;
    IF original THEN
      CONTINUE WHEN NOT pg_try_advisory_xact_lock(
        1885500419, pillarbox.group_key(q.id, first.group_name));
      held := pillarbox.first_held(q.id, first.group_name);
    END IF;
    taken := taken || first.id;
    IF cardinality(taken) < room THEN
      WITH others AS (
        SELECT m.id FROM pillarbox.messages m
        WHERE m.queue = q.id AND m.group_name = first.group_name AND m.state = 4
          AND (held IS NULL OR m.place < held)
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
