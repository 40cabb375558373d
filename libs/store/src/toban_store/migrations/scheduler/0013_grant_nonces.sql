-- migrate:up
-- Copies of an incarnation lose its lease (docs/fencing.md 3.5): the nonce that its heartbeats presented last (0 = none yet), and those that were
-- granted for it, newest first.
SET LOCAL lock_timeout = '10s';
ALTER TABLE scheduler.executors
    ADD COLUMN nonce bigint NOT NULL DEFAULT 0,
    ADD COLUMN nonces bigint[] NOT NULL DEFAULT '{}' CHECK (cardinality(nonces) <= 4);

-- migrate:down
ALTER TABLE scheduler.executors DROP COLUMN nonce, DROP COLUMN nonces;
