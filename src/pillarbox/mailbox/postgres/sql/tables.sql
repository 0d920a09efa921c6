-- Tables, version 4. Times are microseconds since the epoch, by the server's clock.
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
  retention bigint,                            -- delete messages that are older (microseconds)
  history_base bigint NOT NULL DEFAULT 0,      -- added to the ids of transactions (history.sql)
  trimmed bigint NOT NULL DEFAULT 0,           -- the index after the last event that was trimmed
  paused boolean NOT NULL DEFAULT false,
  fair boolean NOT NULL DEFAULT false,         -- groups are tenants (fair.sql)
  has_tenants boolean NOT NULL DEFAULT false,  -- one of them may have sent something
  on_receive boolean NOT NULL DEFAULT false,   -- what has no deliveries left dies when it would be
                                               -- received
  name text COLLATE "C" NOT NULL UNIQUE,
  redelivery text NOT NULL DEFAULT 'tail',
  -- Of queues that brokers serve:
  version text,                                -- changes with the attributes; NULL: no broker made it
  notes bytea,                                 -- the attributes, as brokers write them
  wanted_dead text COLLATE "C",                -- the dead-letter queue of its policy, may be gone
  wanted_deliveries integer
) WITH (fillfactor = 50);
CREATE INDEX queues_dead ON pillarbox.queues (dead) WHERE dead IS NOT NULL;

-- States: 0 ready, 1 leased, 2 scheduled, 3 returned with a delay (and still holding its group),
-- 4 waiting behind its group, 5 ready and of a tenant. Of each group at most one message is ready,
-- and only if none of it is in states 1 or 3. In a fair queue a message has a tenant instead.
CREATE TABLE pillarbox.messages (
  id bigint PRIMARY KEY,
  rank bigint NOT NULL,         -- order in line: pillarbox.rank(priority, place)
  place bigint NOT NULL,        -- order among messages of its priority, or of its group
  due bigint NOT NULL,          -- when its lease or delay ends (states 1, 2, 3)
  leased_at bigint NOT NULL,
  enqueued_at bigint NOT NULL,
  queue integer NOT NULL,
  deliveries integer NOT NULL,  -- failed ones; the one in flight is not counted
  deliveries_before integer NOT NULL DEFAULT 0,  -- of a dead letter: in other queues
  priority smallint NOT NULL,
  state smallint NOT NULL,
  token bytea,                  -- of the lease
  group_name text COLLATE "C",
  tenant text COLLATE "C",
  head bytea,                   -- attributes (MessagePack)
  body bytea NOT NULL,
  attempts jsonb,               -- [leased at, ended at, outcome] of each failed delivery
  source text COLLATE "C",      -- of a dead letter: the queue it came from,
  reason bytea,                 -- why it died (UTF-8; text could not hold a zero byte),
  died_at bigint,               -- and when
  redriven_at bigint            -- retention counts from then on
);

CREATE INDEX messages_ready ON pillarbox.messages (queue, rank) WHERE state = 0;
CREATE INDEX messages_due ON pillarbox.messages (queue, due, id) WHERE state IN (1, 2, 3);
CREATE INDEX messages_waiting ON pillarbox.messages (queue, group_name, place) WHERE state = 4;
CREATE INDEX messages_group_busy ON pillarbox.messages (queue, group_name)
  WHERE group_name IS NOT NULL AND state IN (0, 1, 3);
CREATE INDEX messages_tenant_line ON pillarbox.messages (queue, rank) WHERE state = 5;
CREATE INDEX messages_tenant_ready ON pillarbox.messages (queue, tenant, rank) WHERE state = 5;
CREATE INDEX messages_tenant_held ON pillarbox.messages (queue, tenant, priority)
  WHERE tenant IS NOT NULL AND state IN (1, 3);

-- What was counted lately, so that nobody counts again at once.
CREATE UNLOGGED TABLE pillarbox.tenant_counts (
  queue integer NOT NULL REFERENCES pillarbox.queues ON DELETE CASCADE,
  priority smallint NOT NULL,
  tenant text COLLATE "C" NOT NULL,
  counted_at bigint NOT NULL,
  held bigint NOT NULL,
  PRIMARY KEY (queue, tenant, priority)
) WITH (fillfactor = 50);
CREATE UNLOGGED TABLE pillarbox.lease_counts (
  queue integer PRIMARY KEY REFERENCES pillarbox.queues ON DELETE CASCADE,
  counted_at bigint NOT NULL,
  leases bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE pillarbox.duplicates (
  queue integer NOT NULL REFERENCES pillarbox.queues ON DELETE CASCADE,
  deduplication_id text COLLATE "C" NOT NULL,
  message_id bigint NOT NULL,
  forget_at bigint NOT NULL,
  PRIMARY KEY (queue, deduplication_id)
);
CREATE INDEX duplicates_forget_at ON pillarbox.duplicates (forget_at);

-- What receives with an attempt id were given.
CREATE TABLE pillarbox.attempts (
  queue integer NOT NULL REFERENCES pillarbox.queues ON DELETE CASCADE,
  attempt text COLLATE "C" NOT NULL,
  forget_at bigint NOT NULL,
  token bytea NOT NULL,         -- of the leases
  ids bigint[] NOT NULL,
  PRIMARY KEY (queue, attempt)
);
CREATE INDEX attempts_forget_at ON pillarbox.attempts (forget_at);

-- Numbered in the order in which they are read (history.sql).
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

-- What all brokers of a database know, some of it for a while.
CREATE TABLE pillarbox.broker_facts (
  name text COLLATE "C" PRIMARY KEY,
  value text NOT NULL,
  expires_at bigint
);
