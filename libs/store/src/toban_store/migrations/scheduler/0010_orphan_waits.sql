-- migrate:up
-- Until when an ORPHANED run waits for the report of its executor, whose processes may still run (on_lease_loss: continue); NULL = it does not wait.
SET LOCAL lock_timeout = '10s';
ALTER TABLE scheduler.runs_live ADD COLUMN orphaned_until timestamptz;

-- migrate:down
ALTER TABLE scheduler.runs_live DROP COLUMN orphaned_until;
