-- Version 3: events are numbered in the order in which they are read (history.sql).
ALTER TABLE pillarbox.queues
  ADD COLUMN history_base bigint NOT NULL DEFAULT 0,  -- added to the ids of transactions
  ADD COLUMN trimmed bigint NOT NULL DEFAULT 0;       -- the index after the last event that was trimmed

ALTER TABLE pillarbox.events RENAME TO old_events;
CREATE TABLE pillarbox.events (
  index bigint NOT NULL,
  at bigint NOT NULL,
  enqueued_at bigint,           -- of the message; NULL: it happened to all of them
  message_id bigint,
  queue integer NOT NULL,
  kind text NOT NULL,
  fields jsonb,
  head bytea,
  body bytea,
  PRIMARY KEY (queue, index)
);
INSERT INTO pillarbox.events (index, at, message_id, queue, kind, fields, head, body)
SELECT
  (e.transaction::text::bigint << 20)
    + row_number() OVER (PARTITION BY e.queue, e.transaction ORDER BY e.position),
  e.at, e.message_id, q.id, e.kind, e.fields, e.head, e.body
FROM pillarbox.old_events e JOIN pillarbox.queues q ON q.name = e.queue;
DROP TABLE pillarbox.old_events;
