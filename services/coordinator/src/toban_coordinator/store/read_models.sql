-- fragment: run_details
-- Runs, live and finished ones, with the node of their executors.
SELECT r.id, r.job_name, r.definition_version, r.schedule_name, r.origin, r.slot, r.scheduled_for, r.state::text AS state, r.attempt, r.max_attempts,
       r.lost_count, r.token, r.leader_epoch, r.assigned_worker_id, r.created_at, r.assigned_at, r.dispatched_at, r.started_at, r.finished_at,
       r.exit_code, r.term_signal, r.error_summary, r.reason, r.payload::text AS payload, r.log_ref, r.cancel_reason, r.created_by, r.last_line,
       r.version, r.rerun_of, r.idempotency_key, r.cancel_requested_at, r.event_id, r.trigger_name, r.scope, r.scope_id, r.deferred_on,
       r.progress::text AS progress, e.node_id AS executor,
       r.result::text AS result, r.phase,
       CASE WHEN r.continuation_state = 'CONFIRMING' AND r.continuation_check_deadline_at > now() AND r.finished_at IS NULL
            THEN 'CONFIRMING' ELSE 'NONE' END AS continuation_state, r.continuation_check_started_at, r.continuation_check_deadline_at
  FROM scheduler.job_runs r LEFT JOIN scheduler.executors e ON e.incarnation = r.assigned_incarnation

-- fragment: asked_for
-- What a page of runs may be narrowed to.
(cardinality(%(states)s::text[]) = 0 OR r.state::text = ANY(%(states)s::text[]))
AND (%(worker)s::bigint = 0 OR r.assigned_worker_id = %(worker)s::bigint)
AND (%(ahead)s::boolean OR r.scheduled_for <= now() OR r.dispatched_at IS NOT NULL)

-- name: runs_page
-- Runs below a cursor, newest first, live and finished ones together.
{{run_details}}
 WHERE r.id < %(below)s::bigint
   AND {{asked_for}}
 ORDER BY r.id DESC
 LIMIT %(limit)s::integer

-- name: runs_page_of_job
-- The same for one job: by its index. Those that may have written within a span of time were made before its end and had not ended before it.
{{run_details}}
 WHERE r.id < %(below)s::bigint AND r.job_name = %(job)s::text
   AND (%(schedule)s::text = '' OR r.schedule_name = %(schedule)s::text)
   AND {{asked_for}}
   AND (%(active_until)s::timestamptz IS NULL OR r.created_at < %(active_until)s::timestamptz)
   AND (r.finished_at IS NULL OR r.finished_at >= COALESCE(%(active_from)s::timestamptz, '-infinity'))
 ORDER BY r.id DESC
 LIMIT %(limit)s::integer

-- name: runs_page_of_schedule
-- The same for one schedule: by its index.
{{run_details}}
 WHERE r.id < %(below)s::bigint AND r.schedule_id = COALESCE((SELECT s.id FROM scheduler.schedules s WHERE s.name = %(schedule)s::text),
                                                                 (SELECT max(x.id) FROM scheduler.schedules_deleted x WHERE x.name = %(schedule)s::text))
   AND {{asked_for}}
 ORDER BY r.id DESC
 LIMIT %(limit)s::integer

-- name: run
-- One run, live or finished.
{{run_details}}
 WHERE r.id = %(id)s::bigint
 LIMIT 1

-- name: definition_of
-- The definition that a run was made from.
SELECT r.definition_id, r.definition_version FROM scheduler.job_runs r WHERE r.id = %(id)s::bigint LIMIT 1

-- name: run_version
-- What tells that a run changed.
SELECT r.version, r.state::text AS state FROM scheduler.job_runs r WHERE r.id = %(id)s::bigint LIMIT 1

-- name: attempts
-- The dispatches of a run, in order.
SELECT a.token, a.attempt, a.state, a.worker_id, e.node_id AS executor, a.dispatched_at, a.started_at, a.finished_at, a.exit_code, a.term_signal,
       a.error_summary, a.reason, COALESCE(a.outcome -> 'steps', a.steps, l.steps) AS steps
  FROM scheduler.job_attempts a
  LEFT JOIN scheduler.runs_live l ON l.id = a.run_id AND l.token = a.token
  LEFT JOIN scheduler.executors e ON e.incarnation = a.incarnation
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
    {{run_details}}
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

-- name: executors
-- Executors with how many runs each holds, newest last; of very many the newest, and no one that is off in place of one that is not.
SELECT e.worker_id, e.incarnation::text AS incarnation, e.instance, e.node_id, e.grpc_host, e.grpc_port, e.state, e.slots, e.labels,
       e.last_heartbeat_at, e.registered_at, e.grant_seq, e.lease_ms, e.version, e.off_reason,
       e.load, e.clock_skew_seconds, e.disk_free_bytes, e.certificate_not_after, d.instance IS NOT NULL AS drained, coalesce(d.reason, '') AS drain_reason,
       (SELECT count(*) FROM scheduler.runs_live r
         WHERE r.assigned_incarnation = e.incarnation AND r.state IN ('ASSIGNED', 'RUNNING', 'CANCEL_REQUESTED')
           AND r.dispatched_at IS NOT NULL) AS running
  FROM (SELECT *
          FROM scheduler.executors x
         WHERE (%(worker_id)s::bigint = 0 OR x.worker_id = %(worker_id)s::bigint) AND (%(include_off)s::boolean OR x.state <> 'off')
         ORDER BY x.state = 'off', x.worker_id DESC
         LIMIT 1000) e
  LEFT JOIN scheduler.executor_drains d ON d.instance = e.instance
 ORDER BY e.worker_id

-- name: leader
-- Who leads, and whether the cluster that it was taken on is the one that this statement runs on.
SELECT l.epoch, l.worker_id, l.address, l.taken_at, l.resigned_epoch = l.epoch AS resigned, b.beaten_at, now() AS server_time,
       scheduler.is_settled(l) AS settled
  FROM scheduler.leader l CROSS JOIN scheduler.leader_beat b

-- name: coordinators
-- Coordinators that were here lately: ok, stopped by an operator, or lost.
SELECT c.worker_id, c.incarnation::text AS incarnation, c.node_id, c.address, c.role, c.last_seen_at, c.version,
       c.clock_skew_seconds, c.certificate_not_after,
       CASE WHEN c.status = 'ok' AND c.last_seen_at < now() - make_interval(secs => %(lost_after)s::double precision) THEN 'lost' ELSE c.status END
           AS status
  FROM scheduler.coordinators c
 WHERE c.last_seen_at > now() - interval '1 day'
 ORDER BY c.worker_id
 LIMIT 1000

-- name: counts
-- How many runs wait and how many are on executors.
SELECT count(*) FILTER (WHERE r.state = 'PENDING' AND r.scheduled_for <= now()) AS pending,
       count(*) FILTER (WHERE r.state IN ('RUNNING', 'CANCEL_REQUESTED') OR (r.state = 'ASSIGNED' AND r.dispatched_at IS NOT NULL)) AS running
  FROM scheduler.runs_live r
