-- Version 5: these functions have other parameters now.
DROP FUNCTION IF EXISTS pillarbox.record(pillarbox.queues, text, bigint, jsonb);
DROP FUNCTION IF EXISTS pillarbox.lock_held(integer, bigint[], bytea[], bigint);
