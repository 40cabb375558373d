-- migrate:up
-- A key that a run of another job took first is kept under a longer one, of this job and the key; those of callers have at most 200.
SET LOCAL lock_timeout = '10s';

-- Not validated: what is stored fits the narrower one.
ALTER TABLE scheduler.run_idempotency
    DROP CONSTRAINT run_idempotency_key_check,
    ADD CONSTRAINT run_idempotency_key_check CHECK (length(key) BETWEEN 1 AND 257) NOT VALID;

-- migrate:down
DELETE FROM scheduler.run_idempotency WHERE length(key) > 200;
ALTER TABLE scheduler.run_idempotency
    DROP CONSTRAINT run_idempotency_key_check,
    ADD CONSTRAINT run_idempotency_key_check CHECK (length(key) BETWEEN 1 AND 200);
