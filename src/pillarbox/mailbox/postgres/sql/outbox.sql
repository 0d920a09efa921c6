-- The outbox: messages for mailboxes elsewhere. A relay forwards them after their commit.

-- Within a group, ids are in commit order, because senders wait for one another.
CREATE OR REPLACE FUNCTION pillarbox.put_outbox(
  url_ text, bodies_ bytea[], head_ bytea, priority_ integer, delay_ bigint, group_ text,
  deduplication_id_ text
) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
  IF group_ IS NOT NULL THEN
    PERFORM pg_advisory_xact_lock(1885500421, hashtext(url_ || ' ' || group_));
  END IF;
  RETURN QUERY
    INSERT INTO pillarbox.outbox (
      enqueued_at, delay, priority, url, deduplication_id, group_name, head, body
    )
    SELECT pillarbox.clock(), delay_, priority_, url_,
      coalesce(deduplication_id_, gen_random_uuid()::text), group_, head_, body
    FROM unnest(bodies_) AS body
    RETURNING deduplication_id;
  PERFORM pillarbox.wake(0, 1);  -- relays wait on this id, which no queue has
END $$;
