-- Version 2: additional columns for the queues of brokers.
ALTER TABLE pillarbox.queues
  ADD COLUMN version text,               -- changes with the attributes; NULL: not created by a broker
  ADD COLUMN notes bytea,                -- the attributes, as brokers write them
  ADD COLUMN retention bigint,           -- delete messages that are older (microseconds)
  ADD COLUMN on_receive boolean NOT NULL DEFAULT false,  -- what has no deliveries left dies when
                                                         -- it would be received
  ADD COLUMN wanted_dead text COLLATE "C",  -- the dead-letter queue of its policy, which may be deleted
  ADD COLUMN wanted_deliveries integer;
ALTER TABLE pillarbox.messages ADD COLUMN redriven_at bigint;  -- retention counts from then on

-- Values shared by all brokers of a database, some with an expiry.
CREATE TABLE pillarbox.broker_facts (
  name text COLLATE "C" PRIMARY KEY,
  value text NOT NULL,
  expires_at bigint
);
