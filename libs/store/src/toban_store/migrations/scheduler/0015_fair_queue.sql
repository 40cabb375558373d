-- migrate:up
-- The queue of waiting runs is read scope by scope, and runs whose time is now before missed ones that are caught up (docs/limits.md): the rank of
-- a run is its priority, and half a step below it for one that is caught up.
SET LOCAL lock_timeout = '10s';
DROP INDEX scheduler.runs_live_pending;
CREATE INDEX runs_live_pending ON scheduler.runs_live ((priority * 2 - catch_up::integer) DESC, scope, scope_id, scheduled_for, id)
    WHERE state = 'PENDING';
DROP INDEX scheduler.runs_live_deferred;
CREATE INDEX runs_live_deferred ON scheduler.runs_live
    (deferred_on, (priority * 2 - catch_up::integer) DESC, scope, scope_id, scheduled_for, id) WHERE deferred_on IS NOT NULL;

-- migrate:down
DROP INDEX scheduler.runs_live_deferred;
CREATE INDEX runs_live_deferred ON scheduler.runs_live (deferred_on, priority DESC, scope, scope_id, scheduled_for, id)
    WHERE deferred_on IS NOT NULL;
DROP INDEX scheduler.runs_live_pending;
CREATE INDEX runs_live_pending ON scheduler.runs_live (priority DESC, scheduled_for, id) WHERE state = 'PENDING';
