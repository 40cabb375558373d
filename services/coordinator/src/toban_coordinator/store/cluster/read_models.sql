-- fragment: run_details
-- Runs, live and finished ones, with the node of their executors.
FROM scheduler.job_runs r LEFT JOIN scheduler.executors e ON e.incarnation = r.assigned_incarnation

-- name: run
-- One run, live or finished.
SELECT {{run_columns}}, {{run_values}}, {{run_redact}} AS redact
  {{run_details}}
 WHERE r.id = %(id)s::bigint
 LIMIT 1

-- name: definition_of
-- The definition that a run was made from.
SELECT r.definition_id, r.definition_version FROM scheduler.job_runs r WHERE r.id = %(id)s::bigint LIMIT 1

-- name: place
-- The executor that runs a run, also one that is to stop; nulls where there is none, or it has ended.
SELECT r.token, e.worker_id, e.incarnation::text AS incarnation, e.grpc_host || ':' || e.grpc_port AS address
  FROM scheduler.job_runs r
  LEFT JOIN scheduler.executors e ON e.incarnation = r.assigned_incarnation AND e.state <> 'off' AND r.state IN ('RUNNING', 'CANCEL_REQUESTED')
 WHERE r.id = %(id)s::bigint
 LIMIT 1

-- name: run_version
-- What tells that a run changed.
SELECT r.version, r.state::text AS state FROM scheduler.job_runs r WHERE r.id = %(id)s::bigint LIMIT 1

-- name: attempts
-- The dispatches of a run, in order.
SELECT a.token, a.attempt, a.state, a.worker_id, COALESCE(e.node_id, a.worker) AS executor, a.dispatched_at, a.started_at, a.finished_at, a.exit_code, a.term_signal,
       a.error_summary, a.reason, COALESCE(a.outcome -> 'steps', a.steps, l.steps) AS steps, COALESCE(a.outcome -> 'error_lines', '[]') AS error_lines
  FROM scheduler.job_attempts a
  LEFT JOIN scheduler.runs_live l ON l.id = a.run_id AND l.token = a.token
  LEFT JOIN scheduler.executors e ON e.incarnation = a.incarnation
 WHERE a.run_id = %(id)s::bigint
 ORDER BY a.token
 LIMIT 1000

-- name: events
-- What happened to a run, in order.
SELECT v.at, v.type, v.from_state, v.to_state, v.message, v.actor,
       CASE WHEN v.type = 'rerun' THEN (v.metadata ->> 'run')::bigint END AS rerun
  FROM scheduler.run_events v
 WHERE v.run_id = %(id)s::bigint
 ORDER BY v.at, v.rank
 LIMIT 1000

-- name: orphan_results
-- Results that came too late for their tokens.
SELECT o.token, o.outcome, o.received_at FROM scheduler.orphan_results o WHERE o.run_id = %(id)s::bigint ORDER BY o.token

-- name: last_runs
-- The newest run of each of some jobs whose time has come.
SELECT x.*
  FROM unnest(%(jobs)s::text[]) AS j(name)
 CROSS JOIN LATERAL (
    SELECT {{run_columns}}, {{run_values}}, {{run_redact}} AS redact
      {{run_details}}
     WHERE r.job_name = j.name AND (r.scheduled_for <= now() OR r.dispatched_at IS NOT NULL)
     ORDER BY r.id DESC
     LIMIT 1) x

-- name: jobs_named
-- The definitions with some names.
SELECT d.name, d.version, d.enabled, d.spec::text AS spec, d.spec ->> 'description' AS description, d.updated_at, d.disabled_at, d.disabled_by,
       d.disabled_reason, d.disabled_until
  FROM scheduler.job_definitions d
 WHERE d.deleted_at IS NULL AND d.name = ANY(%(names)s::text[])

-- name: job_versions
-- The definitions of a job below a version, newest first.
SELECT v.version, v.spec::text AS spec, v.created_at, v.created_by, {{definition_redact}} AS redact
  FROM scheduler.job_definitions d JOIN scheduler.job_definition_versions v ON v.definition_id = d.id
 WHERE d.name = %(name)s::text AND d.deleted_at IS NULL AND v.version < %(below)s::bigint
 ORDER BY v.version DESC
 LIMIT %(limit)s::integer

-- name: job_days
-- How many runs of a job ended on each day of UTC from `since` on; at most `most` of each kind are read, so that frequent runs cost no more.
SELECT to_char(d.first AT TIME ZONE 'UTC', 'YYYY-MM-DD') AS day, good.runs AS succeeded, bad.runs AS failed, other.runs AS other
  FROM (SELECT g AS first, g + interval '1 day' AS after
          FROM generate_series(%(since)s::timestamptz, %(until)s::timestamptz, interval '1 day') AS g) d
 CROSS JOIN LATERAL (SELECT count(*) AS runs FROM (
       SELECT FROM scheduler.runs_history r
        WHERE r.job_name = %(name)s::text AND r.finished_at >= d.first AND r.finished_at < d.after AND r.state = 'SUCCEEDED'
        LIMIT %(most)s::integer) x) good
 CROSS JOIN LATERAL (SELECT count(*) AS runs FROM (
       SELECT FROM scheduler.runs_history r
        WHERE r.job_name = %(name)s::text AND r.finished_at >= d.first AND r.finished_at < d.after
          AND r.state IN ('FAILED', 'TIMED_OUT', 'EXPIRED') AND r.state <> 'SUCCEEDED'
        LIMIT %(most)s::integer) x) bad
 CROSS JOIN LATERAL (SELECT count(*) AS runs FROM (
       SELECT FROM scheduler.runs_history r
        WHERE r.job_name = %(name)s::text AND r.finished_at >= d.first AND r.finished_at < d.after
          AND r.state IN ('CANCELED', 'SKIPPED') AND r.state <> 'SUCCEEDED' AND r.reason IS DISTINCT FROM 'withdrawn'
        LIMIT %(most)s::integer) x) other
 WHERE good.runs + bad.runs + other.runs > 0
 ORDER BY d.first

-- name: schedules_page
-- Schedules after a name, of some jobs or of all, with some names or with `part` in them. Last and next run are by slots that have come or not: rows are made
-- ahead. One that makes no runs has no next one, and `resumes_at` when its pauses end.
SELECT s.name, d.name AS job, s.enabled, s.status, s.spec::text AS spec, s.timezone,
       CASE WHEN s.enabled AND d.enabled AND s.status = 'active'
            THEN COALESCE((SELECT min(p.slot) FROM scheduler.run_slots p WHERE p.schedule_id = s.id AND p.slot > now()), s.next_run_at)
       END AS next_run_at,
       COALESCE((SELECT max(p.slot) FROM scheduler.run_slots p WHERE p.schedule_id = s.id AND p.slot <= now()),
                CASE WHEN s.last_run_at <= now() THEN s.last_run_at END) AS last_run_at, s.last_error, s.version, s.status_reason, s.status_actor, s.paused_until,
       s.spec ->> 'description' AS description, s.updated_at, s.updated_by, NOT d.enabled AS job_disabled, d.disabled_until AS job_disabled_until,
       CASE WHEN {{will_fire}} THEN {{resumes_at}} END AS resumes_at, {{disabled_why}} AS job_disabled_why, {{definition_redact}} AS redact
  FROM scheduler.schedules s JOIN scheduler.job_definitions d ON d.id = s.definition_id
 WHERE s.name > %(after)s::text AND (cardinality(%(jobs)s::text[]) = 0 OR d.name = ANY(%(jobs)s::text[]))
   AND (cardinality(%(names)s::text[]) = 0 OR s.name = ANY(%(names)s::text[])) AND position(lower(%(part)s::text) IN lower(s.name)) > 0
 ORDER BY s.name
 LIMIT %(limit)s::integer

-- name: executors
-- Executors with how many runs have a slot of each, without those that wait there for one, newest last; of very many the newest, and no one that is off in place of one that is not.
SELECT e.worker_id, e.incarnation::text AS incarnation, e.instance, e.node_id, e.grpc_host, e.grpc_port, e.state, e.slots, e.labels, e.executor_group,
       e.last_heartbeat_at, e.registered_at, e.grant_seq, e.lease_ms, e.version, e.off_reason,
       e.load, e.clock_skew_seconds, e.disk_free_bytes, e.certificate_not_after, e.isolation, e.isolation_details,
       d.instance IS NOT NULL AS drained, coalesce(d.reason, '') AS drain_reason,
       (SELECT LEAST(count(*), e.slots) FROM scheduler.runs_live r
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
