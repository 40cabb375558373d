-- migrate:up
-- Few runs are ORPHANED at a time. Without an index of their own, PostgreSQL may read all live runs to learn that there is none.
CREATE INDEX runs_live_orphaned ON scheduler.runs_live (id) WHERE state = 'ORPHANED';

-- migrate:down
DROP INDEX scheduler.runs_live_orphaned;
