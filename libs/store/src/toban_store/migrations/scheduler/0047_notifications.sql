-- migrate:up
-- What jobs ask webhooks to be sent (`notify` of their definition), in the form of chat services too; and jobs that have not succeeded for longer
-- than they expect.
SET LOCAL lock_timeout = '10s';
ALTER TABLE scheduler.webhook_targets
    ADD COLUMN form text NOT NULL DEFAULT 'generic' CHECK (form IN ('generic', 'slack', 'teams')),
    -- None: only what jobs ask for.
    DROP CONSTRAINT webhook_targets_states_check;
ALTER TABLE scheduler.webhook_deliveries
    -- What an event that is about no run says.
    ADD COLUMN data jsonb,
    -- The quiet hours of the rule that asked for it.
    ADD COLUMN quiet jsonb;
CREATE INDEX job_definitions_notify ON scheduler.job_definitions (id) WHERE spec ? 'notify';
CREATE INDEX job_definitions_expecting ON scheduler.job_definitions (id) WHERE spec ? 'expect_success_within_seconds';

CREATE TABLE scheduler.job_silences (
    definition_id bigint PRIMARY KEY REFERENCES scheduler.job_definitions ON DELETE CASCADE,
    -- The last success, or when the job was made.
    last_at timestamptz NOT NULL,
    noted_at timestamptz NOT NULL DEFAULT now()
);

-- migrate:down
DROP TABLE scheduler.job_silences;
DROP INDEX scheduler.job_definitions_notify, scheduler.job_definitions_expecting;
DELETE FROM scheduler.webhook_deliveries WHERE type LIKE 'job.%';
ALTER TABLE scheduler.webhook_deliveries DROP COLUMN data, DROP COLUMN quiet;
UPDATE scheduler.webhook_targets SET enabled = false, states = '{FAILED}' WHERE cardinality(states) = 0 OR form <> 'generic';
ALTER TABLE scheduler.webhook_targets
    ADD CONSTRAINT webhook_targets_states_check CHECK (cardinality(states) > 0),
    DROP COLUMN form;
