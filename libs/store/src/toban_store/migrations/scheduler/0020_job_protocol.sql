-- migrate:up
-- Of live runs: what their job keeps for the next attempt ({token, seq, value}), the steps that the present attempt has started, and the step
-- with which the next attempt begins (NULL = the first).
SET LOCAL lock_timeout = '10s';
ALTER TABLE scheduler.runs_live
    ADD COLUMN checkpoint jsonb,
    ADD COLUMN steps jsonb,
    ADD COLUMN first_step integer CHECK (first_step >= 0);

-- Of attempts that ended without an outcome of their own: the steps that they were known to have started.
ALTER TABLE scheduler.job_attempts ADD COLUMN steps jsonb;

-- migrate:down
ALTER TABLE scheduler.job_attempts DROP COLUMN steps;
ALTER TABLE scheduler.runs_live DROP COLUMN checkpoint, DROP COLUMN steps, DROP COLUMN first_step;
