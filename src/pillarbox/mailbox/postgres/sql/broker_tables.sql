-- Version 4: paused queues; fair queues; dead-letter queues of dead-letter queues; how many messages of a queue were in flight when last
-- counted; what receives with an attempt id were given.
ALTER TABLE pillarbox.queues
  ADD COLUMN paused boolean NOT NULL DEFAULT false,
  ADD COLUMN fair boolean NOT NULL DEFAULT false,         -- groups are tenants (fair.sql)
  ADD COLUMN has_tenants boolean NOT NULL DEFAULT false;  -- one of them may have sent something

-- In a fair queue a message has a tenant instead of a group. State 5: ready, and of a tenant.
ALTER TABLE pillarbox.messages
  ADD COLUMN tenant text COLLATE "C",
  ADD COLUMN deliveries_before integer NOT NULL DEFAULT 0;  -- of a dead letter: in other queues
CREATE INDEX messages_tenant_line ON pillarbox.messages (queue, rank) WHERE state = 5;
CREATE INDEX messages_tenant_ready ON pillarbox.messages (queue, tenant, rank) WHERE state = 5;
CREATE INDEX messages_tenant_held ON pillarbox.messages (queue, tenant, priority)
  WHERE tenant IS NOT NULL AND state IN (1, 3);
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

CREATE TABLE pillarbox.attempts (
  queue integer NOT NULL REFERENCES pillarbox.queues ON DELETE CASCADE,
  attempt text COLLATE "C" NOT NULL,
  forget_at bigint NOT NULL,
  token bytea NOT NULL,         -- of the leases
  ids bigint[] NOT NULL,
  PRIMARY KEY (queue, attempt)
);
CREATE INDEX attempts_forget_at ON pillarbox.attempts (forget_at);

-- These have other parameters now.
DROP FUNCTION IF EXISTS pillarbox.is_last(pillarbox.queues, integer);
DROP FUNCTION IF EXISTS pillarbox.claim(
  integer, integer, bigint, bytea, bigint[], bigint, bigint, boolean, boolean);
DROP FUNCTION IF EXISTS pillarbox.declare_queue(text, boolean, text, bigint, boolean, integer, text);
DROP FUNCTION IF EXISTS pillarbox.configure_queue(text, text, text, bytea, bigint, text, integer);
