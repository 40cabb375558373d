-- name: runs_page
-- Runs below a cursor, newest first, live and finished ones together.
SELECT r.id, r.job_name, r.definition_version, r.schedule_name, r.origin, r.slot, r.scheduled_for, r.state::text AS state, r.attempt, r.max_attempts,
       r.lost_count, r.token, r.leader_epoch, r.assigned_worker_id, r.created_at, r.assigned_at, r.dispatched_at, r.started_at, r.finished_at,
       r.exit_code, r.term_signal, r.error_summary, r.reason, r.payload::text AS payload, r.log_ref, r.cancel_reason, r.created_by, r.last_line,
       r.version, r.rerun_of, r.idempotency_key, r.cancel_requested_at, r.event_id, r.trigger_name, r.progress::text AS progress, e.node_id AS executor
  FROM scheduler.job_runs r LEFT JOIN scheduler.executors e ON e.incarnation = r.assigned_incarnation
 WHERE r.id < %(below)s::bigint
   AND (cardinality(%(states)s::text[]) = 0 OR r.state::text = ANY(%(states)s::text[]))
   AND (%(worker)s::bigint = 0 OR r.assigned_worker_id = %(worker)s::bigint)
   AND (%(ahead)s::boolean OR r.scheduled_for <= now() OR r.dispatched_at IS NOT NULL)
 ORDER BY r.id DESC
 LIMIT %(limit)s::integer

-- name: runs_page_of_job
-- The same for one job: by its index. Those that may have written within a span of time were made before its end and had not ended before it.
SELECT r.id, r.job_name, r.definition_version, r.schedule_name, r.origin, r.slot, r.scheduled_for, r.state::text AS state, r.attempt, r.max_attempts,
       r.lost_count, r.token, r.leader_epoch, r.assigned_worker_id, r.created_at, r.assigned_at, r.dispatched_at, r.started_at, r.finished_at,
       r.exit_code, r.term_signal, r.error_summary, r.reason, r.payload::text AS payload, r.log_ref, r.cancel_reason, r.created_by, r.last_line,
       r.version, r.rerun_of, r.idempotency_key, r.cancel_requested_at, r.event_id, r.trigger_name, r.progress::text AS progress, e.node_id AS executor
  FROM scheduler.job_runs r LEFT JOIN scheduler.executors e ON e.incarnation = r.assigned_incarnation
 WHERE r.id < %(below)s::bigint AND r.job_name = %(job)s::text
   AND (%(schedule)s::text = '' OR r.schedule_name = %(schedule)s::text)
   AND (cardinality(%(states)s::text[]) = 0 OR r.state::text = ANY(%(states)s::text[]))
   AND (%(worker)s::bigint = 0 OR r.assigned_worker_id = %(worker)s::bigint)
   AND (%(ahead)s::boolean OR r.scheduled_for <= now() OR r.dispatched_at IS NOT NULL)
   AND (%(active_until)s::timestamptz IS NULL OR r.created_at < %(active_until)s::timestamptz)
   AND (r.finished_at IS NULL OR r.finished_at >= COALESCE(%(active_from)s::timestamptz, '-infinity'))
 ORDER BY r.id DESC
 LIMIT %(limit)s::integer

-- name: runs_page_of_schedule
-- The same for one schedule: by its index.
SELECT r.id, r.job_name, r.definition_version, r.schedule_name, r.origin, r.slot, r.scheduled_for, r.state::text AS state, r.attempt, r.max_attempts,
       r.lost_count, r.token, r.leader_epoch, r.assigned_worker_id, r.created_at, r.assigned_at, r.dispatched_at, r.started_at, r.finished_at,
       r.exit_code, r.term_signal, r.error_summary, r.reason, r.payload::text AS payload, r.log_ref, r.cancel_reason, r.created_by, r.last_line,
       r.version, r.rerun_of, r.idempotency_key, r.cancel_requested_at, r.event_id, r.trigger_name, r.progress::text AS progress, e.node_id AS executor
  FROM scheduler.job_runs r LEFT JOIN scheduler.executors e ON e.incarnation = r.assigned_incarnation
 WHERE r.id < %(below)s::bigint AND r.schedule_id = COALESCE((SELECT s.id FROM scheduler.schedules s WHERE s.name = %(schedule)s::text),
                                                                 (SELECT max(x.id) FROM scheduler.schedules_deleted x WHERE x.name = %(schedule)s::text))
   AND (cardinality(%(states)s::text[]) = 0 OR r.state::text = ANY(%(states)s::text[]))
   AND (%(worker)s::bigint = 0 OR r.assigned_worker_id = %(worker)s::bigint)
   AND (%(ahead)s::boolean OR r.scheduled_for <= now() OR r.dispatched_at IS NOT NULL)
 ORDER BY r.id DESC
 LIMIT %(limit)s::integer

-- name: run
-- One run, live or finished.
SELECT r.id, r.job_name, r.definition_version, r.schedule_name, r.origin, r.slot, r.scheduled_for, r.state::text AS state, r.attempt, r.max_attempts,
       r.lost_count, r.token, r.leader_epoch, r.assigned_worker_id, r.created_at, r.assigned_at, r.dispatched_at, r.started_at, r.finished_at,
       r.exit_code, r.term_signal, r.error_summary, r.reason, r.payload::text AS payload, r.log_ref, r.cancel_reason, r.created_by, r.last_line,
       r.version, r.rerun_of, r.idempotency_key, r.cancel_requested_at, r.event_id, r.trigger_name, r.progress::text AS progress, e.node_id AS executor
  FROM scheduler.job_runs r LEFT JOIN scheduler.executors e ON e.incarnation = r.assigned_incarnation
 WHERE r.id = %(id)s::bigint
 LIMIT 1

-- name: run_version
-- What tells that a run changed.
SELECT r.version, r.state::text AS state FROM scheduler.job_runs r WHERE r.id = %(id)s::bigint LIMIT 1

-- name: attempts
-- The dispatches of a run, in order.
SELECT a.token, a.attempt, a.state, a.worker_id, e.node_id AS executor, a.dispatched_at, a.started_at, a.finished_at, a.exit_code, a.term_signal,
       a.error_summary, a.reason
  FROM scheduler.job_attempts a LEFT JOIN scheduler.executors e ON e.incarnation = a.incarnation
 WHERE a.run_id = %(id)s::bigint
 ORDER BY a.token
 LIMIT 1000

-- name: events
-- What happened to a run, in order.
SELECT v.at, v.type, v.from_state, v.to_state, v.message, v.actor
  FROM scheduler.job_events v
 WHERE v.run_id = %(id)s::bigint
 ORDER BY v.at
 LIMIT 1000

-- name: orphan_results
-- Results that came too late for their tokens.
SELECT o.token, o.outcome, o.received_at FROM scheduler.orphan_results o WHERE o.run_id = %(id)s::bigint ORDER BY o.token

-- name: last_runs
-- The newest run of each of some jobs whose time has come.
SELECT x.*
  FROM unnest(%(jobs)s::text[]) AS j(name)
 CROSS JOIN LATERAL (
    SELECT r.id, r.job_name, r.definition_version, r.schedule_name, r.origin, r.slot, r.scheduled_for, r.state::text AS state, r.attempt, r.max_attempts,
       r.lost_count, r.token, r.leader_epoch, r.assigned_worker_id, r.created_at, r.assigned_at, r.dispatched_at, r.started_at, r.finished_at,
       r.exit_code, r.term_signal, r.error_summary, r.reason, r.payload::text AS payload, r.log_ref, r.cancel_reason, r.created_by, r.last_line,
       r.version, r.rerun_of, r.idempotency_key, r.cancel_requested_at, r.event_id, r.trigger_name, r.progress::text AS progress, e.node_id AS executor
    FROM scheduler.job_runs r LEFT JOIN scheduler.executors e ON e.incarnation = r.assigned_incarnation
     WHERE r.job_name = j.name AND (r.scheduled_for <= now() OR r.dispatched_at IS NOT NULL)
     ORDER BY r.id DESC
     LIMIT 1) x

-- name: jobs_page
-- Definitions after a name.
SELECT d.name, d.version, d.enabled, d.spec::text AS spec, d.spec ->> 'description' AS description, d.updated_at
  FROM scheduler.job_definitions d
 WHERE d.name > %(after)s::text AND (%(only)s::text = '' OR d.name = %(only)s::text)
 ORDER BY d.name
 LIMIT %(limit)s::integer

-- name: schedules_page
-- Schedules after a name, of one job or of all, or the one called `only`. Last and next run are by slots that have come or not: rows are made
-- ahead. One that makes no runs has no next one.
SELECT s.name, d.name AS job, s.enabled, s.status, s.spec::text AS spec, s.timezone,
       CASE WHEN s.enabled AND s.status = 'active'
            THEN COALESCE((SELECT min(p.slot) FROM scheduler.run_slots p WHERE p.schedule_id = s.id AND p.slot > now()), s.next_run_at)
       END AS next_run_at,
       COALESCE((SELECT max(p.slot) FROM scheduler.run_slots p WHERE p.schedule_id = s.id AND p.slot <= now()),
                CASE WHEN s.last_run_at <= now() THEN s.last_run_at END) AS last_run_at, s.last_error, s.version, s.status_reason, s.status_actor,
       s.spec ->> 'description' AS description, s.updated_at, s.updated_by, d.enabled AS job_enabled
  FROM scheduler.schedules s JOIN scheduler.job_definitions d ON d.id = s.definition_id
 WHERE s.name > %(after)s::text AND (cardinality(%(jobs)s::text[]) = 0 OR d.name = ANY(%(jobs)s::text[]))
   AND (%(only)s::text = '' OR s.name = %(only)s::text)
 ORDER BY s.name
 LIMIT %(limit)s::integer
