-- migrate:up
-- Due schedules are read by pages in the order of (next_run_at, id). Thousands that are due in one second have the same next_run_at: with the id
-- in the index a page begins where the one before ended, without a sort of all of them.
SET LOCAL lock_timeout = '10s';
DROP INDEX scheduler.schedules_due;
CREATE INDEX schedules_due ON scheduler.schedules (next_run_at, id) WHERE enabled AND status = 'active' AND next_run_at IS NOT NULL;

-- migrate:down
DROP INDEX scheduler.schedules_due;
CREATE INDEX schedules_due ON scheduler.schedules (next_run_at) WHERE enabled AND status = 'active' AND next_run_at IS NOT NULL;
