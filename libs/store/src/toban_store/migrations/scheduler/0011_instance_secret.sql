-- migrate:up
-- SHA-256 of the secret in the state directory of the executor that this incarnation belongs to (docs/fencing.md 3.8); null = an earlier release.
SET LOCAL lock_timeout = '10s';
ALTER TABLE scheduler.executors ADD COLUMN secret_hash bytea;

-- migrate:down
ALTER TABLE scheduler.executors DROP COLUMN secret_hash;
