-- Read-only functions: the queue as of now.

-- Return the message of an expired lease that is not settled yet, as it will be.
CREATE OR REPLACE FUNCTION pillarbox.expired(m pillarbox.messages, q pillarbox.queues)
RETURNS pillarbox.messages LANGUAGE sql STABLE AS $$
  SELECT pillarbox.failed(m, q, m.due, 'expired', CASE WHEN pillarbox.is_last(q, m)
    THEN pillarbox.reason_for('expired', m.deliveries + 1) END)
$$;

-- Return ready messages in delivery order, then those that wait in held groups.
CREATE OR REPLACE FUNCTION pillarbox.peek_ready(queue_ integer, count_ integer)
RETURNS SETOF pillarbox.messages LANGUAGE plpgsql STABLE AS $$
DECLARE
  q pillarbox.queues;
  now_ bigint := pillarbox.clock();
  last bigint := (1::bigint << 55) - 1;
  ids_ bigint[];
BEGIN
  q := pillarbox.find_queue(queue_);
  IF q.has_tenants THEN
    ids_ := pillarbox.in_turn(q, count_, false);
  END IF;
  RETURN QUERY
    SELECT (x.m).* FROM (
      (SELECT m, 0 AS part, m.rank AS r, '' AS g, m.place AS p, 0::bigint AS d
       FROM pillarbox.messages m
       WHERE m.queue = queue_ AND m.state = 0 AND NOT q.has_tenants ORDER BY m.rank LIMIT count_)
      UNION ALL  -- in turn, but before later places
      (SELECT m, 0, max(m.rank) OVER (ORDER BY turn.n), '', turn.n, 0
       FROM unnest(ids_) WITH ORDINALITY AS turn (id, n) JOIN pillarbox.messages m USING (id))
      UNION ALL
      (SELECT m, CASE WHEN head.rank IS NULL THEN 1 ELSE 0 END, coalesce(head.rank, 0),
         CASE WHEN head.rank IS NULL THEN m.group_name ELSE '' END, m.place, 0
       FROM pillarbox.messages m LEFT JOIN pillarbox.messages head
         ON head.queue = queue_ AND head.state = 0 AND head.group_name = m.group_name
       WHERE m.queue = queue_ AND m.state = 4)
      UNION ALL
      (SELECT m, CASE WHEN m.group_name IS NULL THEN 0 ELSE 2 END,
         pillarbox.rank(m.priority,
           CASE WHEN q.redelivery = 'original' AND m.deliveries > 0 THEN m.place ELSE last END),
         '', last, m.due
       FROM pillarbox.messages m WHERE m.queue = queue_ AND m.state IN (2, 3) AND m.due <= now_)
      UNION ALL
      (SELECT pillarbox.expired(m, s), CASE WHEN m.group_name IS NULL THEN 0 ELSE 2 END,
         pillarbox.rank(m.priority, CASE
           WHEN s.id = queue_ AND q.redelivery = 'original' THEN m.place ELSE last END),
         '', last, m.due
       FROM pillarbox.queues s JOIN pillarbox.messages m
         ON m.queue = s.id AND m.state = 1 AND m.due <= now_
       WHERE (s.id = queue_ AND NOT pillarbox.is_last(s, m))
         OR (s.dead = queue_ AND pillarbox.is_last(s, m)))
    ) AS x
    ORDER BY x.part, x.r, x.g, x.p, x.d, (x.m).id LIMIT count_;
END $$;

CREATE OR REPLACE FUNCTION pillarbox.peek_timed(queue_ integer, states_ smallint[], count_ integer)
RETURNS SETOF pillarbox.messages LANGUAGE sql STABLE AS $$
  SELECT * FROM pillarbox.messages
  WHERE queue = queue_ AND state IN (1, 2, 3) AND state = ANY (states_) AND due > pillarbox.clock()
  ORDER BY due, id LIMIT count_
$$;

-- Return one page of the ready messages, to iterate over all of them.
CREATE OR REPLACE FUNCTION pillarbox.page(
  queue_ integer, rank_ bigint, id_ bigint, count_ integer
) RETURNS SETOF pillarbox.messages LANGUAGE sql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
  SELECT * FROM (  -- each state has its own index, and in states 0 and 5 ranks are unique
    (SELECT * FROM pillarbox.messages
     WHERE queue = queue_ AND state = 0 AND (rank, id) > (rank_, id_) ORDER BY rank LIMIT count_)
    UNION ALL
    (SELECT * FROM pillarbox.messages
     WHERE queue = queue_ AND state = 5 AND (rank, id) > (rank_, id_) ORDER BY rank LIMIT count_)
    UNION ALL
    (SELECT * FROM pillarbox.messages
     WHERE queue = queue_ AND state = 4 AND (rank, id) > (rank_, id_) ORDER BY rank, id LIMIT count_)
  ) AS page ORDER BY rank, id LIMIT count_
$$;

CREATE OR REPLACE FUNCTION pillarbox.tick(queue_ integer) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  PERFORM pillarbox.settle_all(pillarbox.find_queue(queue_), 0, pillarbox.clock());
END $$;

-- Return the counts by state, the dead letters, and the send time of the oldest head of a line.
CREATE OR REPLACE FUNCTION pillarbox.stats(
  queue_ integer, OUT now_ bigint, OUT ready_ bigint, OUT scheduled_ bigint, OUT in_flight_ bigint,
  OUT dead_ bigint, OUT oldest_ bigint
) LANGUAGE plpgsql STABLE AS $$
DECLARE
  q pillarbox.queues;
  died bigint;
  came bigint;
  due_ bigint;
  expired_ bigint;
BEGIN
  q := pillarbox.find_queue(queue_);
  now_ := pillarbox.clock();
  SELECT count(*) FILTER (WHERE state = 1 AND due > now_),
         count(*) FILTER (WHERE state <> 1 AND due > now_),
         count(*) FILTER (WHERE state <> 1 AND due <= now_),
         count(*) FILTER (WHERE state = 1 AND due <= now_),
         count(*) FILTER (WHERE state = 1 AND due <= now_ AND pillarbox.is_last(q, m))
    INTO in_flight_, scheduled_, due_, expired_, died
    FROM pillarbox.messages m WHERE queue = queue_ AND state IN (1, 2, 3);
  SELECT count(*) INTO came FROM pillarbox.queues s JOIN pillarbox.messages m
    ON m.queue = s.id AND m.state = 1 AND m.due <= now_
    WHERE s.dead = queue_ AND pillarbox.is_last(s, m);
  ready_ := due_ + expired_ - died + came
    + (SELECT count(*) FROM pillarbox.messages WHERE queue = queue_ AND state = 0)
    + (SELECT count(*) FROM pillarbox.messages WHERE queue = queue_ AND state = 4)
    + (SELECT count(*) FROM pillarbox.messages WHERE queue = queue_ AND state = 5);
  dead_ := CASE WHEN q.dead IS NULL THEN 0 ELSE pillarbox.count_messages(q.dead) + died END;
  IF q.has_tenants THEN
    SELECT min(m.enqueued_at) INTO oldest_
      FROM pillarbox.first_ready(queue_) JOIN pillarbox.messages m USING (id);
  ELSE
    SELECT min(m.enqueued_at) INTO oldest_ FROM pillarbox.peek_ready(queue_, 256) m;
  END IF;
END $$;
