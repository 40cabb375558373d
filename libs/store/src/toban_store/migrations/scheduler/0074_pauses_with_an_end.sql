-- migrate:up
-- Pauses of schedules and disables of jobs that end by themselves: the leader reads the earliest ends from these indexes, which have those rows alone.
SET LOCAL lock_timeout = '10s';
ALTER TABLE scheduler.job_definitions
    ADD COLUMN disabled_until timestamptz,
    ADD CONSTRAINT job_definitions_disabled_until CHECK (disabled_until IS NULL OR disabled_at IS NOT NULL);
ALTER TABLE scheduler.schedules
    ADD COLUMN paused_until timestamptz,
    ADD CONSTRAINT schedules_paused_until CHECK (paused_until IS NULL OR status = 'paused');
CREATE INDEX job_definitions_enable ON scheduler.job_definitions (disabled_until) WHERE disabled_until IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX schedules_resume ON scheduler.schedules (paused_until) WHERE paused_until IS NOT NULL;

-- migrate:down
ALTER TABLE scheduler.schedules DROP COLUMN paused_until;
ALTER TABLE scheduler.job_definitions DROP COLUMN disabled_until;
