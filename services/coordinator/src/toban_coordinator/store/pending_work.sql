-- name: agenda
-- What there is for the leader's loops to do, as one statement shows it. Each answer covers what the loop itself reads: it may say yes too often,
-- never no too often. Each part is ordered as an index is, since a plan that does not know the times would read whole tables for a row
-- that is not there. Of indexes that begin with something else one entry of each beginning is read: priorities and executors are few.
WITH RECURSIVE waiting AS (
    {{waiting}}
), holders AS (
    {{holders}}
)
SELECT (SELECT 1 FROM scheduler.schedules s
         WHERE s.enabled AND s.status = 'active' AND s.next_run_at <= %(until)s::timestamptz
           AND (s.fire_retry_at IS NULL OR s.fire_retry_at <= %(now)s::timestamptz)
         ORDER BY s.next_run_at LIMIT 1) IS NOT NULL AS fire,
       (SELECT s.next_run_at FROM scheduler.schedules s
         WHERE s.enabled AND s.status = 'active' AND s.next_run_at IS NOT NULL AND s.fire_retry_at IS NULL
         ORDER BY s.next_run_at LIMIT 1) AS next_slot,
       (SELECT 1 FROM scheduler.events e WHERE e.retry_at IS NULL OR e.retry_at <= now() ORDER BY e.id LIMIT 1) IS NOT NULL AS events,
       coalesce((SELECT min(w.scheduled_for) FROM waiting w) <= %(until)s::timestamptz, false) AS pending,
       (SELECT min(w.scheduled_for) FROM waiting w) AS next_due,
       (SELECT 1 FROM scheduler.runs_live r
         WHERE r.state IN ('ASSIGNED', 'CANCEL_REQUESTED')
         ORDER BY r.assigned_at DESC LIMIT 1) IS NOT NULL AS ordered,
       (SELECT 1 FROM scheduler.runs_live r
         WHERE r.state = 'ORPHANED' AND (r.orphaned_until IS NULL OR r.orphaned_until <= now())
         ORDER BY r.id LIMIT 1) IS NOT NULL
       OR EXISTS (SELECT 1 FROM holders h JOIN scheduler.executors x USING (incarnation) WHERE x.state = 'off')
       OR (SELECT r.started_at AT TIME ZONE 'UTC' + make_interval(secs => r.timeout_seconds) FROM scheduler.runs_live r
            WHERE r.state = 'RUNNING' AND r.timeout_seconds > 0
            ORDER BY r.started_at AT TIME ZONE 'UTC' + make_interval(secs => r.timeout_seconds) LIMIT 1)
          < %(now)s::timestamptz AT TIME ZONE 'UTC'
       OR (SELECT r.wait_until FROM scheduler.runs_live r WHERE r.state = 'DEFERRED' AND r.wait_until IS NOT NULL
            ORDER BY r.wait_until LIMIT 1) < %(now)s::timestamptz
       OR (SELECT 1 FROM scheduler.executor_orders o JOIN scheduler.executors x ON x.incarnation = o.incarnation
            WHERE o.done_at IS NOT NULL OR x.state = 'off'
            ORDER BY o.id LIMIT 1) IS NOT NULL AS care,
       (SELECT 1 FROM scheduler.runs_live r WHERE r.state = 'WAITING_WORKER' AND r.locked_by IS NULL ORDER BY r.worker_type LIMIT 1) IS NOT NULL
       OR (SELECT 1 FROM scheduler.runs_live r WHERE r.locked_by IS NOT NULL ORDER BY r.id LIMIT 1) IS NOT NULL AS external,
       (SELECT 1 FROM scheduler.runs_live r WHERE r.state = 'DEFERRED' AND r.deferred_on IS NOT NULL ORDER BY r.deferred_on LIMIT 1) IS NOT NULL AS deferred,
       (SELECT 1 FROM scheduler.unresolved_attempts u ORDER BY u.run_id LIMIT 1) IS NOT NULL AS unresolved,
       (SELECT 1 FROM scheduler.admin_action_log a WHERE a.seq IS NULL ORDER BY a.id LIMIT 1) IS NOT NULL AS unchained;
