-- migrate:up
-- Jobs that a person disabled: they start nothing until a person enables them again, whatever is applied meanwhile.
SET LOCAL lock_timeout = '10s';
ALTER TABLE scheduler.job_definitions
    ADD COLUMN disabled_at timestamptz,
    ADD COLUMN disabled_by text NOT NULL DEFAULT '',
    ADD COLUMN disabled_reason text NOT NULL DEFAULT '' CHECK (length(disabled_reason) <= 1000),
    ADD CONSTRAINT job_definitions_disabled CHECK (
        CASE WHEN disabled_at IS NULL THEN disabled_by = '' AND disabled_reason = '' ELSE NOT enabled AND disabled_by <> '' END);

-- migrate:down
ALTER TABLE scheduler.job_definitions
    DROP CONSTRAINT job_definitions_disabled,
    DROP COLUMN disabled_at,
    DROP COLUMN disabled_by,
    DROP COLUMN disabled_reason;
