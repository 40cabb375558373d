-- migrate:up
-- Groups of executors, the group that each instance belongs to, and whether an executor proves its key to log-archivers.
SET LOCAL lock_timeout = '10s';

CREATE TABLE scheduler.executor_groups (
    name       text PRIMARY KEY CHECK (name ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    -- Labels that each executor of the group has.
    labels     jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(labels) = 'object'),
    -- Names of labels whose values an executor may choose; '*' = all.
    claims     text[] NOT NULL DEFAULT '{}',
    version    integer NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    updated_by text NOT NULL DEFAULT ''
);
INSERT INTO scheduler.executor_groups (name, claims) VALUES ('default', '{*}');

-- An instance belongs to the group that first registered it.
CREATE TABLE scheduler.executor_instances (
    instance       text PRIMARY KEY,
    executor_group text NOT NULL,
    registered_at  timestamptz NOT NULL DEFAULT now()
);
INSERT INTO scheduler.executor_instances (instance, executor_group) SELECT DISTINCT e.instance, 'default' FROM scheduler.executors e;

ALTER TABLE scheduler.executors
    ADD COLUMN executor_group text NOT NULL DEFAULT 'default',
    ADD COLUMN proves_log_key boolean NOT NULL DEFAULT false;

-- migrate:down
ALTER TABLE scheduler.executors DROP COLUMN executor_group, DROP COLUMN proves_log_key;
DROP TABLE scheduler.executor_instances;
DROP TABLE scheduler.executor_groups;
