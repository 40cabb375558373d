-- name: orphaned
-- Runs whose executor was fenced, and that do not wait for its report (any more).
SELECT r.id FROM scheduler.runs_live r
 WHERE r.state = 'ORPHANED' AND (r.orphaned_until IS NULL OR r.orphaned_until <= now()) ORDER BY r.id LIMIT %(limit)s::integer

-- name: held_by_off
-- Runs that PostgreSQL holds for an incarnation that is off. Of the index of holders one entry each is read: executors are few, runs may be many.
WITH RECURSIVE holders AS (
    {{holders}}
)
SELECT o.id
  FROM holders h JOIN scheduler.executors e USING (incarnation)
 CROSS JOIN LATERAL (
    SELECT r.id FROM scheduler.runs_live r
     WHERE r.assigned_incarnation = h.incarnation AND r.state IN ('ASSIGNED', 'RUNNING', 'CANCEL_REQUESTED')
     LIMIT %(limit)s::integer) o
 WHERE e.state = 'off'
 LIMIT %(limit)s::integer

-- name: lock_held_by_off
-- Locks those of some runs that an incarnation holds which is off (off is final, so its row needs no lock).
SELECT {{run_to_decide}}
  FROM scheduler.runs_live r
 WHERE r.id = ANY(%(ids)s::bigint[])
   AND EXISTS (SELECT 1 FROM scheduler.executors e WHERE e.incarnation = r.assigned_incarnation AND e.state = 'off')
 ORDER BY r.id
   FOR UPDATE OF r

-- name: overdue
-- RUNNING runs that are past their timeout, the longest first, by the index of deadlines. Time in which their attempt was frozen does not count.
-- An executor without a heartbeat for a whole lease may have frozen them and has not said so yet.
-- A page begins after the last run of the one before: its order and `deadline` leave frozen time out, so that they do not change meanwhile.
SELECT r.id, r.token, r.assigned_incarnation::text AS incarnation, r.attempt, r.max_attempts, r.lost_count, r.max_lost, r.definition_id,
       r.definition_version, r.started_at, r.timeout_seconds, f.seconds AS frozen_seconds,
       r.started_at + make_interval(secs => r.timeout_seconds) AS deadline
  FROM scheduler.runs_live r
  JOIN scheduler.executors e ON e.incarnation = r.assigned_incarnation
 CROSS JOIN LATERAL (SELECT COALESCE(max(a.frozen_seconds), 0) AS seconds FROM scheduler.job_attempts a
                      WHERE a.run_id = r.id AND a.token = r.token AND a.log_day = r.log_day) f
 WHERE r.state = 'RUNNING' AND r.timeout_seconds > 0
   AND e.last_heartbeat_at > %(now)s::timestamptz - make_interval(secs => e.lease_ms / 1000.0)
   AND r.started_at + make_interval(secs => r.timeout_seconds + f.seconds) < %(now)s::timestamptz
   AND r.started_at AT TIME ZONE 'UTC' + make_interval(secs => r.timeout_seconds) < %(now)s::timestamptz AT TIME ZONE 'UTC'
   AND (r.started_at AT TIME ZONE 'UTC' + make_interval(secs => r.timeout_seconds), r.id)
       > (%(after_deadline)s::timestamptz AT TIME ZONE 'UTC', %(after_id)s::bigint)
 ORDER BY r.started_at AT TIME ZONE 'UTC' + make_interval(secs => r.timeout_seconds), r.id
 LIMIT %(limit)s::integer
