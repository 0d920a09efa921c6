-- Fair queues: a tenant with a large share of the messages in flight waits behind the others.
--
-- A ready message of a tenant has state 5 and is indexed by tenant and rank, so that a noisy
-- tenant's messages need not be scanned. What a tenant holds is counted on demand, so that no path
-- that ends a lease has to maintain a counter.

-- Whether a tenant is noisy; core/fair.py has the same rule. Without in_flight: whether it might be.
CREATE OR REPLACE FUNCTION pillarbox.is_noisy(held bigint, in_flight bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$ SELECT held >= 30 AND held * 10 > coalesce(in_flight, 0) $$;

-- Return whether groups are tenants in a queue; if so, mark that it has tenants.
CREATE OR REPLACE FUNCTION pillarbox.admits_tenants(queue_ integer) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  UPDATE pillarbox.queues SET has_tenants = true WHERE id = queue_ AND fair AND NOT has_tenants;
  RETURN (SELECT fair FROM pillarbox.queues WHERE id = queue_);
END $$;

-- How far a receive of this many scans the line before it looks for other tenants.
CREATE OR REPLACE FUNCTION pillarbox.window_of(count_ integer) RETURNS integer
LANGUAGE sql IMMUTABLE AS $$ SELECT count_ + 100 $$;

-- Return, for each priority, the first ready message of each tenant, and of those without a tenant.
CREATE OR REPLACE FUNCTION pillarbox.first_ready(queue_ integer)
RETURNS TABLE (id bigint, tenant text, rank bigint) LANGUAGE sql STABLE AS $$
  WITH RECURSIVE tenants AS (
    (SELECT m.id, m.tenant, m.rank FROM pillarbox.messages m
     WHERE m.queue = queue_ AND m.state = 5 ORDER BY m.tenant, m.rank LIMIT 1)
    UNION ALL
    SELECT following.* FROM tenants t CROSS JOIN LATERAL (
      SELECT m.id, m.tenant, m.rank FROM pillarbox.messages m
      WHERE m.queue = queue_ AND m.state = 5
        AND (m.tenant, m.rank) > (t.tenant, pillarbox.last_rank(t.rank))
      ORDER BY m.tenant, m.rank LIMIT 1
    ) AS following
  ), plain AS (
    (SELECT m.id, m.rank FROM pillarbox.messages m
     WHERE m.queue = queue_ AND m.state = 0 ORDER BY m.rank LIMIT 1)
    UNION ALL
    SELECT following.* FROM plain p CROSS JOIN LATERAL (
      SELECT m.id, m.rank FROM pillarbox.messages m
      WHERE m.queue = queue_ AND m.state = 0 AND m.rank > pillarbox.last_rank(p.rank)
      ORDER BY m.rank LIMIT 1
    ) AS following
  )
  SELECT * FROM tenants UNION ALL SELECT p.id, NULL, p.rank FROM plain p
$$;

-- Return the last rank of the priority of a rank.
CREATE OR REPLACE FUNCTION pillarbox.last_rank(rank_ bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT rank_ | ((1::bigint << 55) - 1) $$;

-- Return the first ready message of a tenant (NULL: without one) from a rank to the end of its
-- priority; if it is to be taken, lock it and skip those that other transactions have locked.
CREATE OR REPLACE FUNCTION pillarbox.ready_from(
  queue_ integer, tenant_ text, rank_ bigint, takes_ boolean, OUT id bigint, OUT rank bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE last_ bigint := pillarbox.last_rank(rank_);
BEGIN
  IF tenant_ IS NULL AND takes_ THEN
    SELECT m.id, m.rank INTO ready_from.id, ready_from.rank FROM pillarbox.messages m
      WHERE m.queue = queue_ AND m.state = 0 AND m.rank BETWEEN rank_ AND last_
      ORDER BY m.rank LIMIT 1 FOR UPDATE SKIP LOCKED;
  ELSIF tenant_ IS NULL THEN
    SELECT m.id, m.rank INTO ready_from.id, ready_from.rank FROM pillarbox.messages m
      WHERE m.queue = queue_ AND m.state = 0 AND m.rank BETWEEN rank_ AND last_
      ORDER BY m.rank LIMIT 1;
  ELSIF takes_ THEN
    SELECT m.id, m.rank INTO ready_from.id, ready_from.rank FROM pillarbox.messages m
      WHERE m.queue = queue_ AND m.state = 5 AND m.tenant = tenant_
        AND m.rank BETWEEN rank_ AND last_
      ORDER BY m.rank LIMIT 1 FOR UPDATE SKIP LOCKED;
  ELSE
    SELECT m.id, m.rank INTO ready_from.id, ready_from.rank FROM pillarbox.messages m
      WHERE m.queue = queue_ AND m.state = 5 AND m.tenant = tenant_
        AND m.rank BETWEEN rank_ AND last_
      ORDER BY m.rank LIMIT 1;
  END IF;
END $$;

-- Return how many messages a tenant holds in a priority: in flight, or returned with a delay; for
-- the tenant '', how many messages of the queue are in flight. A claim caches a count of more than
-- 1,000 rows for a second. A read-only caller may be on a standby, which has no unlogged tables.
CREATE OR REPLACE FUNCTION pillarbox.count_held(
  queue_ integer, tenant_ text, priority_ integer, notes_ boolean
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  now_ bigint := pillarbox.clock();
  held_ bigint;
  seen bigint;
BEGIN
  IF notes_ THEN
    SELECT held INTO held_ FROM pillarbox.tenant_counts
      WHERE queue = queue_ AND tenant = tenant_ AND priority = priority_
        AND counted_at BETWEEN now_ - 1000000 AND now_;
    IF FOUND THEN
      RETURN held_;
    END IF;
  END IF;
  IF tenant_ = '' THEN
    SELECT count(*) FILTER (WHERE state = 1), count(*) INTO held_, seen FROM pillarbox.messages
      WHERE queue = queue_ AND state IN (1, 2, 3);
  ELSE
    SELECT count(*), count(*) INTO held_, seen FROM pillarbox.messages
      WHERE queue = queue_ AND tenant = tenant_ AND priority = priority_ AND state IN (1, 3);
  END IF;
  -- Never wait for this lock, so that there can be no deadlock.
  IF notes_ AND seen > 1000 AND pg_try_advisory_xact_lock(1885500423, queue_) THEN
    INSERT INTO pillarbox.tenant_counts VALUES (queue_, priority_, tenant_, now_, held_)
      ON CONFLICT (queue, tenant, priority) DO UPDATE SET counted_at = now_, held = held_;
  END IF;
  RETURN held_;
END $$;

-- Return up to count_ ready messages in delivery order. If they are to be taken, lock exactly those.
CREATE OR REPLACE FUNCTION pillarbox.in_turn(q pillarbox.queues, count_ integer, takes_ boolean)
RETURNS bigint[] LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  size integer := pillarbox.window_of(count_);
  tenants_ text[];      -- lines of messages: their tenants,
  ranks bigint[];       -- the rank of the first of each,
  held bigint[] := '{}';  -- and what the tenant holds, with what it is given here
  following integer := 1;  -- the first line not yet examined
  until_ bigint;        -- lines that begin behind this rank are not known yet
  priority_ bigint;     -- of the current lines, as encoded in a rank
  quiet integer[];      -- of these, those that are served, lowest rank first
  noisy integer[];      -- and those served after them
  calm boolean;         -- all others have been served
  in_flight bigint;
  given integer;        -- number given to tenants of this priority
  line integer;
  id_ bigint;
  rank_ bigint;
  low integer;
  high integer;
  middle integer;
  taken bigint[] := '{}';
BEGIN
  WITH seen AS (
    (SELECT m.tenant, m.rank FROM pillarbox.messages m
     WHERE m.queue = q.id AND m.state = 5 ORDER BY m.rank LIMIT size)
    UNION ALL
    (SELECT NULL, m.rank FROM pillarbox.messages m
     WHERE m.queue = q.id AND m.state = 0 ORDER BY m.rank LIMIT size)
  ), lines AS (
    SELECT n.tenant, min(n.rank) AS head, max(n.rank) AS tail, count(*) AS messages
    FROM (SELECT * FROM seen ORDER BY rank LIMIT size) AS n GROUP BY n.tenant, n.rank >> 55
  )
  SELECT array_agg(l.tenant ORDER BY l.head), array_agg(l.head ORDER BY l.head),
      CASE WHEN sum(l.messages) >= size THEN max(l.tail) END
    INTO tenants_, ranks, until_ FROM lines l;
  WHILE following <= cardinality(ranks) AND cardinality(taken) < count_ LOOP
    priority_ := ranks[following] >> 55;
    quiet := '{}';
    noisy := '{}';
    calm := false;
    given := 0;
    WHILE cardinality(taken) < count_ LOOP
      IF coalesce(least(ranks[quiet[1]], ranks[following]), until_) >= until_ THEN
        SELECT tenants_ || array_agg(f.tenant ORDER BY f.rank),
            ranks || array_agg(f.rank ORDER BY f.rank)
          INTO tenants_, ranks FROM pillarbox.first_ready(q.id) AS f
          WHERE f.rank > until_ AND NOT EXISTS (
            SELECT FROM unnest(tenants_, ranks) AS known (tenant, rank)
            WHERE known.tenant IS NOT DISTINCT FROM f.tenant AND known.rank >> 55 = f.rank >> 55);
        until_ := NULL;
      END IF;
      IF ranks[following] >> 55 = priority_
        AND (quiet = '{}' OR ranks[following] < ranks[quiet[1]])
      THEN
        quiet := following || quiet;
        IF tenants_[following] IS NOT NULL THEN
          held[following] := pillarbox.count_held(
            q.id, tenants_[following], 255 - priority_::integer, takes_);
        END IF;
        following := following + 1;
      ELSIF quiet = '{}' THEN
        EXIT WHEN calm;
        quiet := noisy;
        calm := true;
        CONTINUE;
      END IF;
      line := quiet[1];
      quiet := quiet[2:];
      IF NOT calm AND pillarbox.is_noisy(held[line], NULL) THEN
        IF in_flight IS NULL THEN
          in_flight := pillarbox.count_held(q.id, '', 0, takes_);
        END IF;
        IF pillarbox.is_noisy(held[line], in_flight + given) THEN
          noisy := noisy || line;
          CONTINUE;
        END IF;
      END IF;
      SELECT id, rank INTO id_, rank_
        FROM pillarbox.ready_from(q.id, tenants_[line], ranks[line], takes_);
      CONTINUE WHEN id_ IS NULL;  -- other transactions have locked the rest
      taken := taken || id_;
      IF tenants_[line] IS NOT NULL THEN
        held[line] := held[line] + 1;
        given := given + 1;
      END IF;
      CONTINUE WHEN rank_ = pillarbox.last_rank(rank_);
      SELECT rank INTO rank_ FROM pillarbox.ready_from(q.id, tenants_[line], rank_ + 1, false);
      CONTINUE WHEN rank_ IS NULL;
      ranks[line] := rank_;
      low := 0;
      high := cardinality(quiet);
      WHILE low < high LOOP
        middle := (low + high) / 2;
        IF ranks[quiet[middle + 1]] < rank_ THEN
          low := middle + 1;
        ELSE
          high := middle;
        END IF;
      END LOOP;
      quiet := quiet[:low] || line || quiet[low + 1:];
    END LOOP;
  END LOOP;
  RETURN taken;
END $$;
