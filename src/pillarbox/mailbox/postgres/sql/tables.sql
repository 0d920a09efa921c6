-- Tables, version 1. Times are microseconds since the epoch, by the server's clock.
CREATE TABLE pillarbox.schema_version (version integer NOT NULL);
INSERT INTO pillarbox.schema_version VALUES (0);

-- One sequence for message ids and for places in line: both grow with every use.
CREATE SEQUENCE pillarbox.message_ids;

CREATE TABLE pillarbox.queues (
  id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  max_deliveries integer NOT NULL DEFAULT 0,   -- 0: never dead-letter
  dead integer REFERENCES pillarbox.queues,    -- the dead-letter queue
  history boolean NOT NULL DEFAULT false,      -- record events in pillarbox.events
  capacity bigint,
  room bigint NOT NULL DEFAULT 0,              -- sends that surely fit before the next count
  front bigint NOT NULL DEFAULT 0,             -- how many places in front of all others are used
  rewinds bigint NOT NULL DEFAULT 0,           -- how often a message went back to an earlier place
  expires_at bigint,                           -- a client's own queue of replies ends by itself
  name text COLLATE "C" NOT NULL UNIQUE,
  redelivery text NOT NULL DEFAULT 'tail'
) WITH (fillfactor = 50);
CREATE INDEX queues_dead ON pillarbox.queues (dead) WHERE dead IS NOT NULL;

-- States: 0 ready, 1 leased, 2 scheduled, 3 returned with a delay (and still holding its group),
-- 4 waiting behind its group. Of each group at most one message is ready, and only if none of it
-- is in states 1 or 3.
CREATE TABLE pillarbox.messages (
  id bigint PRIMARY KEY,
  rank bigint NOT NULL,         -- order in line: pillarbox.rank(priority, place)
  place bigint NOT NULL,        -- order among messages of its priority, or of its group
  due bigint NOT NULL,          -- when its lease or delay ends (states 1, 2, 3)
  leased_at bigint NOT NULL,
  enqueued_at bigint NOT NULL,
  queue integer NOT NULL,
  deliveries integer NOT NULL,  -- failed ones; the one in flight is not counted
  priority smallint NOT NULL,
  state smallint NOT NULL,
  token bytea,                  -- of the lease
  group_name text COLLATE "C",
  head bytea,                   -- attributes (MessagePack)
  body bytea NOT NULL,
  attempts jsonb,               -- [leased at, ended at, outcome] of each failed delivery
  source text COLLATE "C",      -- of a dead letter: the queue it came from,
  reason bytea,                 -- why it died (UTF-8; text could not hold a zero byte),
  died_at bigint                -- and when
);

CREATE INDEX messages_ready ON pillarbox.messages (queue, rank) WHERE state = 0;
CREATE INDEX messages_due ON pillarbox.messages (queue, due, id) WHERE state IN (1, 2, 3);
CREATE INDEX messages_waiting ON pillarbox.messages (queue, group_name, place) WHERE state = 4;
CREATE INDEX messages_group_busy ON pillarbox.messages (queue, group_name)
  WHERE group_name IS NOT NULL AND state IN (0, 1, 3);

CREATE TABLE pillarbox.duplicates (
  queue integer NOT NULL REFERENCES pillarbox.queues ON DELETE CASCADE,
  deduplication_id text COLLATE "C" NOT NULL,
  message_id bigint NOT NULL,
  forget_at bigint NOT NULL,
  PRIMARY KEY (queue, deduplication_id)
);
CREATE INDEX duplicates_forget_at ON pillarbox.duplicates (forget_at);

CREATE TABLE pillarbox.events (
  position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at bigint NOT NULL,
  queue text COLLATE "C" NOT NULL,
  kind text NOT NULL,
  message_id bigint,
  fields jsonb,
  body bytea,
  head bytea,
  transaction xid8 NOT NULL DEFAULT pg_current_xact_id()
);
-- Read in the order of transactions, up to the oldest that still runs: none can come in between.
CREATE INDEX events_in_order ON pillarbox.events (queue, transaction, position);

-- Messages for mailboxes elsewhere, written in the transactions of their senders (outbox.sql).
CREATE TABLE pillarbox.outbox (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  enqueued_at bigint NOT NULL,
  delay bigint NOT NULL,
  priority smallint NOT NULL,
  url text NOT NULL,
  deduplication_id text NOT NULL,
  group_name text,
  head bytea,
  body bytea NOT NULL,
  error text                    -- why it can't be sent; such a message is left alone
);
CREATE INDEX outbox_waiting ON pillarbox.outbox (url, id) WHERE error IS NULL;
