-- name: agenda
-- What there is for the leader's loops to do, as one statement shows it. Each answer covers what the loop itself reads: it may say yes too often,
-- never no too often. Each part is ordered as an index is, since a plan that does not know the times would read whole tables for a row
-- that is not there.
SELECT (SELECT 1 FROM scheduler.schedules s
         WHERE s.enabled AND s.status = 'active' AND s.next_run_at <= %(until)s::timestamptz
           AND (s.fire_retry_at IS NULL OR s.fire_retry_at <= %(now)s::timestamptz)
         ORDER BY s.next_run_at LIMIT 1) IS NOT NULL AS fire,
       (SELECT s.next_run_at FROM scheduler.schedules s
         WHERE s.enabled AND s.status = 'active' AND s.next_run_at IS NOT NULL AND s.fire_retry_at IS NULL
         ORDER BY s.next_run_at LIMIT 1) AS next_slot,
       EXISTS (SELECT 1 FROM scheduler.events e WHERE e.retry_at IS NULL OR e.retry_at <= now()) AS events,
       (SELECT 1 FROM scheduler.runs_live r
         WHERE r.state = 'PENDING' AND r.scheduled_for <= %(until)s::timestamptz
         ORDER BY r.priority DESC, r.scheduled_for, r.id LIMIT 1) IS NOT NULL AS pending,
       (SELECT 1 FROM scheduler.runs_live r
         WHERE r.state IN ('ASSIGNED', 'CANCEL_REQUESTED')
         ORDER BY r.assigned_incarnation LIMIT 1) IS NOT NULL AS ordered,
       (SELECT 1 FROM scheduler.runs_live r LEFT JOIN scheduler.executors x ON x.incarnation = r.assigned_incarnation
         WHERE r.state IN ('ASSIGNED', 'RUNNING', 'CANCEL_REQUESTED', 'ORPHANED')
           AND (r.state = 'ORPHANED' OR x.state = 'off'
                OR (r.state = 'RUNNING' AND r.timeout_seconds > 0
                    AND r.started_at + make_interval(secs => r.timeout_seconds) < %(now)s::timestamptz))
         ORDER BY r.assigned_incarnation LIMIT 1) IS NOT NULL
       OR EXISTS (SELECT 1 FROM scheduler.executor_orders o JOIN scheduler.executors x ON x.incarnation = o.incarnation
                   WHERE o.done_at IS NOT NULL OR x.state = 'off') AS care;
