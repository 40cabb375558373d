-- name: lock_live
-- Locks live runs by id, for a decision about them in this transaction.
SELECT {{run_to_decide}}
  FROM scheduler.runs_live r
 WHERE r.id = ANY(%(ids)s::bigint[])
 ORDER BY r.id
   FOR UPDATE

-- name: started
-- ASSIGNED → RUNNING, by (run, token).
WITH input AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::bigint[], %(tokens)s::bigint[], %(times)s::timestamptz[]) AS i(id, token, started_at)
), moved AS (
    UPDATE scheduler.runs_live r
       SET state = 'RUNNING', started_at = GREATEST(r.dispatched_at, LEAST(i.started_at, now())), version = r.version + 1
      FROM input i
     WHERE r.id = ANY(%(ids)s::bigint[]) AND r.id = i.id AND r.token = i.token AND r.state::text = 'ASSIGNED'
    RETURNING r.id, r.token, r.log_day, r.started_at
), attempt AS (
    UPDATE scheduler.job_attempts a SET state = 'RUNNING', started_at = m.started_at
      FROM moved m
     WHERE a.run_id = m.id AND a.token = m.token AND a.log_day = m.log_day AND a.state = 'DISPATCHED'
), event AS (
    INSERT INTO scheduler.job_events (run_id, type, from_state, to_state) SELECT id, 'started', 'ASSIGNED', 'RUNNING' FROM moved
)
SELECT id FROM moved

-- name: finish
-- live → SUCCEEDED | FAILED | TIMED_OUT | CANCELED | SKIPPED | EXPIRED: the row goes to the history; its attempt and event with it, and loop
-- `assign` is woken when a run waits, loop `resume` when one is deferred. An end that a trigger waits for is an event from then on, and one that a
-- webhook waits for, or that its job notifies one of, is in the outbox. A source of
-- '' is any state in which the executor `reporter` holds the run, and 'claimed' any in which `worker` does; both end the last dispatch of a run only.
WITH input AS MATERIALIZED (
    SELECT i.id, i.source, i.reporter, i.token, i.target, COALESCE(i.reason, '') AS new_reason, COALESCE(i.error, '') AS new_error,
           COALESCE(i.message, '') AS message, COALESCE(i.actor, '') AS actor, COALESCE(i.attempt_state, '') AS attempt_state, i.outcome, i.worker,
           (i.outcome ->> 'started_at')::timestamptz AS new_started, (i.outcome ->> 'finished_at')::timestamptz AS new_finished,
           (i.outcome ->> 'exit_code')::integer AS new_exit_code, (i.outcome ->> 'signal')::integer AS new_signal,
           (i.outcome ->> 'last_seq')::bigint AS last_seq, COALESCE(i.outcome ->> 'last_line', '') AS new_last_line
      FROM jsonb_to_recordset(%(moves)s::jsonb)
           AS i(id bigint, source text, token bigint, target text, reason text, error text, message text, actor text, attempt_state text,
                outcome jsonb, reporter uuid, worker text)
), locked AS MATERIALIZED (
    {{lock_runs}}
), gone AS (
    DELETE FROM scheduler.runs_live r
     USING input i JOIN locked l ON l.id = i.id JOIN scheduler.run_transitions t
                ON t.from_state = l.state AND t.to_state = i.target::scheduler.run_state
     WHERE r.id = ANY(%(ids)s::bigint[]) AND r.id = i.id AND r.state = l.state AND r.token IS NOT DISTINCT FROM i.token
       AND (r.state::text = i.source
            OR (r.next_step IS NULL
                AND (i.source = '' AND r.assigned_incarnation = i.reporter
                     AND r.state IN ('ASSIGNED', 'RUNNING', 'CANCEL_REQUESTED', 'ORPHANED')
                     OR i.source = 'claimed' AND r.locked_by = i.worker AND r.state IN ('WAITING_WORKER', 'CANCEL_REQUESTED'))))
    RETURNING r.*, r.state::text AS source, i.target, i.new_reason, i.new_error, i.message, i.actor, i.attempt_state, i.outcome, i.new_exit_code, i.new_signal,
              i.last_seq, i.new_last_line,
              -- The executor's clock may be off; a day partition for anything between yesterday and now is there.
              -- Without a time reported by the executor the run ends now.
              CASE WHEN i.new_finished IS NULL THEN now()
                   ELSE LEAST(now(), GREATEST(i.new_finished, r.dispatched_at, now() - interval '1 day')) END AS ended_at,
              CASE WHEN i.new_started IS NULL THEN r.started_at ELSE LEAST(now(), GREATEST(i.new_started, r.dispatched_at)) END AS began_at
), history AS (
    -- With the id of the last step that the outcome names.
    INSERT INTO scheduler.runs_history (
        id, definition_id, definition_version, job_name, schedule_id, schedule_name, origin, slot, scheduled_for, state, phase, priority, scope, scope_id,
        attempt, max_attempts, lost_count, max_lost, timeout_seconds, version, not_before, token, log_day, leader_epoch, assigned_incarnation,
        assigned_worker_id, assigned_at, dispatched_at, started_at, finished_at, exit_code, term_signal, reason, error_summary, last_line, log_ref,
        payload, progress, result, idempotency_key, cancel_requested_at, cancel_reason, cancel_mode, cancel_actor, continuation_state,
        continuation_check_started_at, continuation_check_deadline_at, locked_by, locked_until, rerun_of, created_at, created_by, event_id, trigger_name,
        concurrency_group, deferred_on, deferred_at, catch_up, after_run, chain_depth, first_step)
    SELECT id, definition_id, definition_version, job_name, schedule_id, schedule_name, origin, slot, scheduled_for, target::scheduler.run_state,
           CASE WHEN outcome ? 'steps'
                THEN COALESCE((SELECT v.spec #>> ARRAY['steps', outcome #>> '{steps,-1,index}', 'id']
                                 FROM scheduler.job_definition_versions v
                                WHERE (v.definition_id, v.version) = (gone.definition_id, gone.definition_version)), phase)
                ELSE phase END,
           priority, scope, scope_id, attempt, max_attempts, lost_count, max_lost, timeout_seconds, version + 1, not_before, token, log_day,
           leader_epoch, assigned_incarnation, assigned_worker_id, assigned_at, dispatched_at,
           CASE WHEN began_at IS NULL THEN NULL ELSE LEAST(began_at, ended_at) END, ended_at, new_exit_code, new_signal, new_reason,
           new_error, new_last_line, COALESCE(outcome ->> 'log_ref', log_ref), payload, COALESCE(outcome -> 'progress', progress),
           COALESCE(outcome -> 'result', result), idempotency_key, cancel_requested_at, cancel_reason, cancel_mode,
           cancel_actor, continuation_state, continuation_check_started_at, continuation_check_deadline_at, NULL, NULL, rerun_of, created_at, created_by,
           event_id, trigger_name, concurrency_group, deferred_on, deferred_at, catch_up, after_run, chain_depth, first_step
      FROM gone
), attempt AS (
    UPDATE scheduler.job_attempts a
       SET state = g.attempt_state, started_at = COALESCE(g.began_at, a.started_at), finished_at = g.ended_at, exit_code = g.new_exit_code,
           term_signal = g.new_signal, reason = g.new_reason, error_summary = g.new_error, last_seq = COALESCE(g.last_seq, a.last_seq),
           outcome = COALESCE(g.outcome, a.outcome)
      FROM gone g
     WHERE a.run_id = g.id AND a.token = g.token AND a.log_day = g.log_day AND g.attempt_state <> ''
), event AS (
    -- The view run_events derives a plain end from the history. The feed of changes would miss one that is committed long after its time.
    INSERT INTO scheduler.job_events (at, run_id, type, from_state, to_state, message, actor)
    SELECT clock_timestamp(), id, lower(target), source, target, message, actor
      FROM gone
     WHERE source NOT IN ('ASSIGNED', 'RUNNING') OR message <> '' OR actor <> '' OR ended_at < now() - interval '2 seconds'
), waiting AS MATERIALIZED (
    -- In the order of an index: else the planner, which does not expect many runs, reads all of them to find that none is deferred. Only for a
    -- notification: while a snapshot is open, to find that no run waits is to pass over every run since.
    SELECT %(notify)s::boolean
       AND (EXISTS (SELECT 1 FROM scheduler.runs_live w WHERE w.state = 'PENDING')
            OR EXISTS (SELECT 1 FROM scheduler.runs_live w
                        WHERE w.state = 'ASSIGNED' AND w.dispatched_at IS NULL AND w.scheduled_for <= now())) AS assign,
           (SELECT 1 FROM scheduler.runs_live w
             WHERE w.state = 'DEFERRED' AND w.deferred_on IS NOT NULL ORDER BY w.deferred_on LIMIT 1) IS NOT NULL AS resume
), watch AS MATERIALIZED (
    -- Asked once for all of them: most clusters have nothing that waits for ends of runs.
    SELECT EXISTS (SELECT 1 FROM scheduler.event_triggers t WHERE t.enabled AND t.run_end) AS triggers,
           EXISTS (SELECT 1 FROM scheduler.webhook_targets w WHERE w.enabled) AS webhooks,
           EXISTS (SELECT 1 FROM scheduler.job_silences) AS silences
), noticed AS (
    -- The ends that something may wait for, with the current definitions of their jobs.
    SELECT g.id, g.definition_id, g.job_name, g.target, d.spec -> 'labels' AS labels, d.spec -> 'notify' AS notify,
           CASE WHEN g.target = 'SKIPPED' AND g.new_reason = 'late' THEN '{SKIPPED,LATE}' ELSE ARRAY[g.target] END AS states
      FROM gone g LEFT JOIN scheduler.job_definitions d ON d.id = g.definition_id
     WHERE (SELECT triggers OR webhooks FROM watch) AND g.new_reason <> 'withdrawn'
), chained AS (
    INSERT INTO scheduler.events (event_type, payload, created_by)
    SELECT '@run-end', jsonb_build_object('run', n.id), 'run ' || n.id
      FROM noticed n
     WHERE (SELECT triggers FROM watch)
       AND EXISTS (
            SELECT 1 FROM scheduler.event_triggers t
             WHERE t.enabled AND t.run_end AND t.event_type IN ('@run-end', '@run-end:' || n.job_name)
               AND t.spec -> 'on_run_end' -> 'states' ?| n.states
               AND (t.event_type <> '@run-end'
                    OR (t.definition_id <> n.definition_id AND n.labels @> (t.spec -> 'on_run_end' -> 'labels'))))
    RETURNING id
), recoveries AS MATERIALIZED (
    -- Read only where a rule asks. By a function, since a statement opens all days of a history that it names itself, also when it reads none.
    SELECT scheduler.ends_after_failures(array_agg(n.id), array_agg(n.job_name)) AS id
      FROM noticed n
     WHERE n.target = 'SUCCEEDED' AND n.notify @? '$[*].on[*] ? (@ == "recovered")'
), hooked AS (
    -- What a target waits for, and what the job itself asks for.
    INSERT INTO scheduler.webhook_deliveries (target_id, type, run_id, quiet, once)
    SELECT w.id, e.type, n.id, e.quiet, e.type = 'job.late'
      FROM noticed n JOIN scheduler.webhook_targets w ON w.enabled
     CROSS JOIN LATERAL (
           SELECT 'run.' || lower(n.target) AS type, NULL::jsonb AS quiet
            WHERE w.states && n.states AND (w.jobs = '{}' OR w.jobs @> ARRAY[n.job_name]) AND (w.labels = '{}' OR n.labels @> w.labels)
           UNION ALL
           SELECT 'job.' || k.kind, rule -> 'quiet_hours'
             FROM jsonb_array_elements(n.notify) AS rule CROSS JOIN (VALUES ('failed'), ('late'), ('recovered')) AS k(kind)
            WHERE rule ->> 'webhook' = w.name AND rule -> 'on' ? k.kind
              AND CASE k.kind
                  WHEN 'failed' THEN n.target IN ('FAILED', 'TIMED_OUT', 'EXPIRED')
                  -- Loop `notices` may have sent it while the run was live.
                  WHEN 'late' THEN 'LATE' = ANY (n.states)
                                   AND NOT EXISTS (SELECT 1 FROM scheduler.webhook_deliveries o
                                                    WHERE o.run_id = n.id AND o.target_id = w.id AND o.type = 'job.late')
                  ELSE n.target = 'SUCCEEDED' AND (EXISTS (SELECT 1 FROM scheduler.job_silences o WHERE o.definition_id = n.definition_id)
                                                   OR n.id IN (SELECT r.id FROM recoveries r)) END) e
        ON CONFLICT DO NOTHING
), ended_silences AS (
    DELETE FROM scheduler.job_silences o USING gone g
     WHERE (SELECT silences FROM watch) AND g.target = 'SUCCEEDED' AND o.definition_id = g.definition_id
), done AS (
    -- A run that is to succeed once has.
    INSERT INTO scheduler.succeeded_keys (definition_id, concurrency_group, run_id)
    SELECT definition_id, concurrency_group, id FROM gone WHERE target = 'SUCCEEDED' AND concurrency_group LIKE 'once:%%'
        ON CONFLICT (definition_id, concurrency_group) DO NOTHING
)
SELECT id, token, assigned_incarnation::text AS incarnation, job_name, target, origin, new_reason, message, definition_id, definition_version,
       schedule_id, slot,
       CASE WHEN attempt = 1 AND lost_count = 0 THEN extract(epoch FROM began_at - scheduled_for)::double precision END AS start_lag,
       CASE WHEN attempt = 1 AND lost_count = 0
            THEN extract(epoch FROM began_at - GREATEST(created_at, scheduled_for))::double precision END AS wait,
       extract(epoch FROM ended_at - began_at)::double precision AS seconds,
       (SELECT assign FROM waiting) AS assign, (SELECT resume FROM waiting) AS resume,
       (SELECT pg_notify('toban_wake', 'assign') FROM waiting w WHERE w.assign)::text AS woken,
       (SELECT pg_notify('toban_wake', 'resume') FROM waiting w WHERE w.resume AND %(notify)s::boolean)::text AS resumed,
       (SELECT pg_notify('toban_wake', 'events') WHERE EXISTS (SELECT 1 FROM chained))::text AS chained
  FROM gone

-- name: release
-- ASSIGNED | RUNNING | ORPHANED | DEFERRED | WAITING_WORKER → PENDING: no executor and no worker holds the run any more; attempt and lost_count get new values.
WITH input AS MATERIALIZED (
    SELECT *
      FROM unnest(%(ids)s::bigint[], %(sources)s::text[], %(tokens)s::bigint[], %(attempts)s::integer[], %(losts)s::integer[],
                  %(delays)s::double precision[], %(types)s::text[], %(messages)s::text[], %(started)s::timestamptz[],
                  %(first_steps)s::integer[], %(keeps_limits)s::boolean[], %(results)s::text[])
           AS i(id, source, token, attempt, lost_count, delay, type, message, started_at, first_step, keeps_limits, result)
), locked AS MATERIALIZED (
    {{lock_runs}}
), moved AS (
    UPDATE scheduler.runs_live r
       SET state = 'PENDING', attempt = i.attempt, lost_count = i.lost_count, version = r.version + 1,
           not_before = CASE WHEN i.delay > 0 THEN now() + make_interval(secs => i.delay) END,
           started_at = CASE WHEN i.started_at IS NULL THEN r.started_at ELSE LEAST(now(), GREATEST(i.started_at, r.dispatched_at)) END, token = NULL, log_day = NULL, leader_epoch = NULL, assigned_incarnation = NULL, assigned_worker_id = NULL, assigned_at = NULL,
           dispatched_at = NULL, progress = NULL, steps = NULL, first_step = GREATEST(COALESCE(i.first_step, r.first_step), r.base_step), orphaned_until = NULL,
           next_step = NULL, kept_token = CASE WHEN i.keeps_limits THEN COALESCE(r.token, r.kept_token) END,
           worker_type = (SELECT v.spec #>> ARRAY['steps', COALESCE(GREATEST(COALESCE(i.first_step, r.first_step), r.base_step), 0)::text, 'worker_type']
                            FROM scheduler.job_definition_versions v
                           WHERE v.definition_id = r.definition_id AND v.version = r.definition_version),
           locked_by = NULL, locked_until = NULL, lock_ttl_ms = NULL, claimed_at = NULL, claim_deadline = NULL, cancel_until = NULL,
           result = COALESCE(NULLIF(i.result, '')::jsonb, r.result),
           continuation_state = '', continuation_check_started_at = NULL, continuation_check_deadline_at = NULL,
           deferred_on = NULL, deferred_weight = NULL, deferred_at = NULL, resumed_at = NULL
      FROM input i JOIN locked l ON l.id = i.id
     WHERE r.id = ANY(%(ids)s::bigint[]) AND r.id = i.id AND r.state = i.source::scheduler.run_state AND r.token IS NOT DISTINCT FROM i.token
    RETURNING r.id, i.source, i.type, i.message
), event AS (
    INSERT INTO scheduler.job_events (run_id, type, from_state, to_state, message) SELECT id, type, source, 'PENDING', message FROM moved
)
SELECT id FROM moved

-- name: resume_lost
-- PENDING → ORPHANED: back to the attempt that was lost last, whose result has arrived; nothing of the run has been sent since. Not for a job with
-- external steps, where the result may be that of some steps only.
WITH input AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::bigint[], %(tokens)s::bigint[]) AS i(id, token)
), moved AS (
    UPDATE scheduler.runs_live r
       SET state = 'ORPHANED', version = r.version + 1, token = a.token, log_day = a.log_day, leader_epoch = a.leader_epoch,
           assigned_incarnation = a.incarnation, assigned_worker_id = a.worker_id, assigned_at = a.dispatched_at,
           dispatched_at = a.dispatched_at, started_at = COALESCE(a.started_at, r.started_at), not_before = NULL
      FROM input i
      JOIN scheduler.job_attempts a ON a.run_id = i.id AND a.token = i.token
     WHERE r.id = i.id AND r.state::text = 'PENDING' AND r.token IS NULL AND r.attempt = a.attempt
       AND a.state = 'LOST' AND a.outcome IS NULL AND a.incarnation = ANY(%(reporters)s::uuid[])
       AND NOT EXISTS (SELECT FROM scheduler.job_attempts later WHERE later.run_id = i.id AND later.token > i.token)
       AND NOT EXISTS (SELECT FROM scheduler.job_definition_versions v
                        WHERE v.definition_id = r.definition_id AND v.version = r.definition_version
                          AND v.spec -> 'steps' @> '[{"type": "external"}]')
    RETURNING r.id
), event AS (
    INSERT INTO scheduler.job_events (run_id, type, from_state, to_state, message)
    SELECT id, 'orphaned', 'PENDING', 'ORPHANED', 'the result of the lost attempt arrived before another one was sent' FROM moved
)
SELECT id FROM moved

-- name: orphan
-- ASSIGNED | RUNNING → ORPHANED, by (run, token): the executor went away under it.
WITH input AS MATERIALIZED (
    SELECT *
      FROM unnest(%(ids)s::bigint[], %(sources)s::text[], %(tokens)s::bigint[], %(messages)s::text[], %(may_run)s::boolean[])
           AS i(id, source, token, message, may_run)
), locked AS MATERIALIZED (
    {{lock_runs}}
), moved AS (
    UPDATE scheduler.runs_live r
       SET state = 'ORPHANED', version = r.version + 1, orphaned_until = CASE WHEN i.may_run THEN {{orphan_wait}} END
      FROM input i JOIN locked l ON l.id = i.id
     WHERE r.id = ANY(%(ids)s::bigint[]) AND r.id = i.id AND r.state = i.source::scheduler.run_state AND r.token = i.token
    RETURNING r.id, i.source, i.message
), event AS (
    INSERT INTO scheduler.job_events (run_id, type, from_state, to_state, message) SELECT id, 'orphaned', source, 'ORPHANED', message FROM moved
)
SELECT id FROM moved

-- name: request_cancel
-- ASSIGNED | RUNNING | WAITING_WORKER (claimed) → CANCEL_REQUESTED, by (run, token).
WITH input AS MATERIALIZED (
    SELECT *
      FROM unnest(%(ids)s::bigint[], %(sources)s::text[], %(tokens)s::bigint[], %(reasons)s::text[], %(modes)s::text[], %(actors)s::text[],
                  %(holds)s::double precision[])
           AS i(id, source, token, reason, mode, actor, hold)
), locked AS MATERIALIZED (
    {{lock_runs}}
), moved AS (
    UPDATE scheduler.runs_live r
       SET state = 'CANCEL_REQUESTED', cancel_requested_at = now(), cancel_reason = i.reason, cancel_mode = i.mode, cancel_actor = i.actor,
           cancel_until = now() + make_interval(secs => i.hold), version = r.version + 1
      FROM input i JOIN locked l ON l.id = i.id
     WHERE r.id = ANY(%(ids)s::bigint[]) AND r.id = i.id AND r.state = i.source::scheduler.run_state AND r.token IS NOT DISTINCT FROM i.token
    RETURNING r.id, i.source, i.reason, i.actor, i.mode
), event AS (
    INSERT INTO scheduler.job_events (run_id, type, from_state, to_state, message, actor)
    SELECT id, CASE WHEN mode = 'kill' THEN 'kill_requested' ELSE 'cancel_requested' END, source, 'CANCEL_REQUESTED', reason, actor FROM moved
)
SELECT id FROM moved
