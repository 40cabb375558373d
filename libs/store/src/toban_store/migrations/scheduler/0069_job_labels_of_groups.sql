-- migrate:up
-- The labels that a job must have to run on executors of a group; empty = every job.
SET LOCAL lock_timeout = '10s';

ALTER TABLE scheduler.executor_groups
    ADD COLUMN job_labels jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(job_labels) = 'object');

-- migrate:down
ALTER TABLE scheduler.executor_groups DROP COLUMN job_labels;
