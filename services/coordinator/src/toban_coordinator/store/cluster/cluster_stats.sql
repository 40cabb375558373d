-- name: waiting
-- Runs whose time has come and that no executor holds, by state, definition, whether they wait for a retry, and whether a worker has claimed them; counted up to `limit`.
SELECT r.state::text AS state, r.definition_id, r.definition_version AS version, r.retry, r.claimed, count(*)::bigint AS runs,
       GREATEST(0, extract(epoch FROM now() - min(r.scheduled_for)))::double precision AS oldest
  FROM (SELECT state, definition_id, definition_version, scheduled_for, COALESCE(not_before > now(), false) AS retry, locked_by IS NOT NULL AS claimed
          FROM scheduler.runs_live
         WHERE state IN ('PENDING', 'DEFERRED', 'WAITING_WORKER') AND scheduled_for <= now()
         LIMIT %(limit)s::integer) r
 GROUP BY r.state, r.definition_id, r.definition_version, r.retry, r.claimed;

-- name: held
-- Runs that an executor holds or held, by state: how many, for how long the first of them is in it, and how far one has run beyond its timeout.
-- The time in which an ORPHANED run waits for the report of its executor does not count.
SELECT r.state::text AS state, count(*)::bigint AS runs,
       GREATEST(0, COALESCE(max(extract(epoch FROM now() - CASE r.state
           WHEN 'ASSIGNED' THEN COALESCE(r.dispatched_at, r.scheduled_for)
           WHEN 'RUNNING' THEN r.started_at
           WHEN 'CANCEL_REQUESTED' THEN r.cancel_requested_at
           ELSE GREATEST(COALESCE(e.off_at, r.dispatched_at), r.orphaned_until) END)), 0))::double precision AS oldest,
       GREATEST(0, COALESCE(max(extract(epoch FROM now() - r.started_at) - r.timeout_seconds
                                    - COALESCE((SELECT a.frozen_seconds FROM scheduler.job_attempts a
                                                 WHERE a.run_id = r.id AND a.token = r.token AND a.log_day = r.log_day), 0))
                                FILTER (WHERE r.state = 'RUNNING' AND r.timeout_seconds > 0), 0))::double precision AS overtime
  FROM scheduler.runs_live r LEFT JOIN scheduler.executors e ON e.incarnation = r.assigned_incarnation
 WHERE r.state IN ('ASSIGNED', 'RUNNING', 'CANCEL_REQUESTED', 'ORPHANED')
 GROUP BY r.state;

-- name: overdue
-- How long the oldest slot has been due without a run or a row in the ledger; a schedule that waits for its next try is left out until that
-- is over too.
SELECT extract(epoch FROM now() - s.next_run_at)::double precision AS seconds
  FROM scheduler.schedules s
 WHERE s.enabled AND s.status = 'active' AND s.next_run_at <= now()
   AND (s.fire_retry_at IS NULL OR s.fire_retry_at < now() - interval '30 seconds')
 ORDER BY s.next_run_at
 LIMIT 1;

-- name: executor_extremes
-- The worst of all executors that are not off: by how much a clock is off PostgreSQL's, and the least free disk.
SELECT max(abs(e.clock_skew_seconds)) AS clock_skew, min(e.disk_free_bytes) AS disk_free
  FROM scheduler.executors e
 WHERE e.state <> 'off';

-- name: standbys
-- Stand-bys of PostgreSQL by how commits wait for them; 'unknown' when this role may not know (pg_monitor may). Backups are none, nor are
-- readers of changes (logical replication): no fail-over goes to them.
SELECT CASE WHEN s.sync_state IN ('sync', 'quorum') THEN 'sync' WHEN s.sync_state IS NULL THEN 'unknown' ELSE 'async' END AS mode,
       count(*)::bigint AS standbys
  FROM pg_stat_replication s
 WHERE s.state IS DISTINCT FROM 'backup'
   AND s.pid NOT IN (SELECT p.active_pid FROM pg_replication_slots p WHERE p.slot_type = 'logical' AND p.active_pid IS NOT NULL)
 GROUP BY 1;
