-- migrate:up
-- What notifications of jobs remember: which deliveries wait for the end of quiet hours, what is sent once for a run, and when jobs last succeeded.
SET LOCAL lock_timeout = '10s';
ALTER TABLE scheduler.webhook_deliveries
    -- Until `next_at`, because of quiet hours: it holds up no other delivery of its run.
    ADD COLUMN postponed boolean NOT NULL DEFAULT false,
    -- At most one of this type for a run and a target. Older releases, which still work on this schema, do not set it.
    ADD COLUMN once boolean NOT NULL DEFAULT false;
CREATE UNIQUE INDEX webhook_deliveries_once ON scheduler.webhook_deliveries (run_id, target_id, type) WHERE once;
CREATE INDEX runs_live_definition ON scheduler.runs_live (definition_id, id);

-- For longer than runs are kept.
CREATE TABLE scheduler.job_successes (
    definition_id bigint PRIMARY KEY REFERENCES scheduler.job_definitions ON DELETE CASCADE,
    at timestamptz NOT NULL
);

-- migrate:down
DROP TABLE scheduler.job_successes;
DROP INDEX scheduler.runs_live_definition;
ALTER TABLE scheduler.webhook_deliveries DROP COLUMN postponed, DROP COLUMN once;
