-- migrate:up
-- Failed schedules are counted for the dashboard and for health: they are few, and all schedules were read for it.
SET LOCAL lock_timeout = '10s';
CREATE INDEX schedules_failed ON scheduler.schedules (name) WHERE status = 'failed';

-- migrate:down
DROP INDEX scheduler.schedules_failed;
