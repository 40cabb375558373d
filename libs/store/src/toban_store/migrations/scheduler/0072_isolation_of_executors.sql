-- migrate:up
-- The class of an executor, and what isolates its jobs. A coordinator of the release before registers executors without it: these are shared.
SET LOCAL lock_timeout = '10s';

ALTER TABLE scheduler.executors
    ADD COLUMN isolation text NOT NULL DEFAULT 'shared' CHECK (isolation IN ('shared', 'isolated')),
    ADD COLUMN isolation_details text[] NOT NULL DEFAULT '{}';

-- migrate:down
ALTER TABLE scheduler.executors DROP COLUMN isolation, DROP COLUMN isolation_details;
