-- migrate:up
-- What an executor holds is counted at each turn that places runs. Runs that were placed ahead name an executor too and were not sent: with
-- dispatched_at in the index thousands of them are passed over, and not read each time.
SET LOCAL lock_timeout = '10s';
DROP INDEX scheduler.runs_live_held;
CREATE INDEX runs_live_held ON scheduler.runs_live (assigned_incarnation, dispatched_at)
    WHERE state IN ('ASSIGNED', 'RUNNING', 'CANCEL_REQUESTED', 'ORPHANED');

-- migrate:down
DROP INDEX scheduler.runs_live_held;
CREATE INDEX runs_live_held ON scheduler.runs_live (assigned_incarnation)
    WHERE state IN ('ASSIGNED', 'RUNNING', 'CANCEL_REQUESTED', 'ORPHANED');
