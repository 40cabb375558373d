-- migrate:up
-- A job that is deleted keeps its row and its versions, since its runs show them; its name is free. No name that a job may have begins so.
SET LOCAL lock_timeout = '10s';
ALTER TABLE scheduler.job_definitions
    ADD COLUMN deleted_at timestamptz,
    ADD COLUMN deleted_name text NOT NULL DEFAULT '',
    DROP CONSTRAINT job_definitions_name_check,
    ADD CONSTRAINT job_definitions_name_check
        CHECK (name ~ '^[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?$' OR (deleted_at IS NOT NULL AND name = 'deleted/' || id)) NOT VALID;
CREATE INDEX job_definitions_deleted ON scheduler.job_definitions (deleted_name, id DESC) WHERE deleted_at IS NOT NULL;

-- migrate:down
DROP INDEX scheduler.job_definitions_deleted;
UPDATE scheduler.job_definitions SET name = 'deleted-' || id WHERE deleted_at IS NOT NULL;
ALTER TABLE scheduler.job_definitions
    DROP CONSTRAINT job_definitions_name_check,
    DROP COLUMN deleted_at,
    DROP COLUMN deleted_name,
    ADD CONSTRAINT job_definitions_name_check CHECK (name ~ '^[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?$') NOT VALID;
