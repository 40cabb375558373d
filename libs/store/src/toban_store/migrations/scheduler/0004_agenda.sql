-- migrate:up
-- What the leader asks once a tick (toban_store.scheduler.agenda) is answered by an index each, however many runs go on.

-- Orders that are not confirmed, and runs that wait for a place after a loss.
CREATE INDEX runs_live_orders ON scheduler.runs_live (assigned_at) WHERE state IN ('ASSIGNED', 'CANCEL_REQUESTED', 'ORPHANED');
-- The first timeout of all; without a time zone, since an index must not depend on the session's.
CREATE INDEX runs_live_deadline ON scheduler.runs_live ((started_at AT TIME ZONE 'UTC' + make_interval(secs => timeout_seconds)))
    WHERE state = 'RUNNING' AND timeout_seconds > 0;

-- migrate:down
DROP INDEX scheduler.runs_live_orders, scheduler.runs_live_deadline;
