-- name: enqueue
-- ∅ → PENDING: one row a run, in the order given, and a wake-up. A run whose idempotency key is taken is not made.
-- Nothing is made, and no row answered, when a definition is not the current, enabled one any more; a run that repeats another (`rerun_of`) may
-- be of an earlier version.
WITH wanted AS MATERIALIZED (
    SELECT nextval('scheduler.run_id_seq') AS id, u.*
      FROM ROWS FROM (
               unnest(%(definition_ids)s::bigint[], %(versions)s::bigint[], %(jobs)s::text[], %(times)s::timestamptz[], %(priorities)s::integer[],
                      %(max_attempts)s::integer[], %(max_lost)s::integer[], %(timeouts)s::integer[]),
               jsonb_array_elements(%(payloads)s::jsonb),
               jsonb_array_elements_text(%(keys)s::jsonb),
               jsonb_array_elements_text(%(own_keys)s::jsonb),
               jsonb_array_elements_text(%(scopes)s::jsonb),
               jsonb_array_elements_text(%(scope_ids)s::jsonb),
               jsonb_array_elements_text(%(groups)s::jsonb),
               unnest(%(claims)s::boolean[], %(reruns)s::bigint[]))
           WITH ORDINALITY
           AS u(definition_id, version, job, scheduled_for, priority, max_attempts, max_lost, timeout, payload, key, own_key, scope, scope_id, concurrency_group,
                claims, rerun_of, ord)
), stale AS MATERIALIZED (
    SELECT 1 FROM (SELECT DISTINCT definition_id, CASE WHEN rerun_of IS NULL THEN version END AS version FROM wanted) w
             LEFT JOIN scheduler.job_definitions d ON d.id = w.definition_id AND d.version = COALESCE(w.version, d.version) AND d.enabled
     WHERE d.id IS NULL
), keyed AS MATERIALIZED (
    -- The first job has the key itself. Another one has its own beside it, and keeps that when the first one's is forgotten.
    SELECT w.id, CASE WHEN w.job <> COALESCE((SELECT r.job_name FROM scheduler.run_idempotency k JOIN scheduler.job_runs r ON r.id = k.run_id
                                               WHERE k.key = w.key LIMIT 1),
                                             first_value(w.job) OVER (PARTITION BY w.key ORDER BY w.ord))
                      THEN w.own_key ELSE w.key END AS key
      FROM wanted w
     WHERE w.key IS NOT NULL AND NOT EXISTS (SELECT 1 FROM stale)
       AND NOT EXISTS (SELECT 1 FROM scheduler.run_idempotency o WHERE o.key = w.own_key)
), claimed AS (
    INSERT INTO scheduler.run_idempotency (key, run_id) SELECT key, id FROM keyed ORDER BY id ON CONFLICT (key) DO NOTHING
    RETURNING run_id
), made AS (
    INSERT INTO scheduler.runs_live (id, definition_id, definition_version, job_name, origin, scheduled_for, priority, max_attempts, max_lost,
                                     timeout_seconds, payload, idempotency_key, log_ref, created_by, scope, scope_id, concurrency_group, group_claimed,
                                     rerun_of, worker_type)
    SELECT w.id, w.definition_id, w.version, w.job, CASE WHEN w.rerun_of IS NULL THEN 'demand' ELSE 'rerun' END, COALESCE(w.scheduled_for, now()), w.priority, w.max_attempts, w.max_lost, w.timeout,
           w.payload, w.key, 'toban-log:' || w.id, %(actor)s::text, w.scope, w.scope_id, w.concurrency_group, w.claims, w.rerun_of,
           (SELECT v.spec #>> '{steps,0,worker_type}' FROM scheduler.job_definition_versions v
              WHERE v.definition_id = w.definition_id AND v.version = w.version)
      FROM wanted w LEFT JOIN claimed c ON c.run_id = w.id
     WHERE (w.key IS NULL OR c.run_id IS NOT NULL) AND NOT EXISTS (SELECT 1 FROM stale)
    RETURNING id, rerun_of, job_name AS job
), started AS (
    SELECT id, job, rerun_of FROM made
), noted AS (
    {{note_starts}}
)
SELECT w.id, m.id IS NOT NULL AS created, (SELECT pg_notify('toban_wake', 'assign'))::text AS woken
  FROM wanted w LEFT JOIN made m ON m.id = w.id
 WHERE NOT EXISTS (SELECT 1 FROM stale)
 ORDER BY w.ord

-- name: claimant
-- The live run that holds a group under policy reject_same_scope.
SELECT r.id
  FROM scheduler.runs_live r
 WHERE r.definition_id = %(definition_id)s::bigint AND r.concurrency_group = %(group)s::text AND r.group_claimed

-- name: succeeded
-- The run of a group that SUCCEEDED, of a job with repeatable: false.
SELECT d.run_id AS id
  FROM scheduler.succeeded_keys d
 WHERE d.definition_id = %(definition_id)s::bigint AND d.concurrency_group = %(group)s::text

-- name: by_keys
-- Runs that idempotency keys name for these jobs. One that the history has dropped may be of any job.
SELECT i.job, i.key, k.run_id
  FROM ROWS FROM (jsonb_array_elements_text(%(jobs)s::jsonb), jsonb_array_elements_text(%(keys)s::jsonb),
                  jsonb_array_elements_text(%(own_keys)s::jsonb)) AS i(job, key, own_key)
  JOIN scheduler.run_idempotency k ON k.key IN (i.key, i.own_key)
  LEFT JOIN scheduler.job_runs r ON r.id = k.run_id
 WHERE k.key = i.own_key OR COALESCE(r.job_name, i.job) = i.job
 ORDER BY k.key = i.own_key

-- name: other_payload
-- A run with another payload than a request has that names the run again. A run of another version of the job, whose default payload may
-- differ, is compared by what the caller gives. jsonb compares numbers by value and types exactly, which a document that was read back does not.
SELECT i.run_id
  FROM ROWS FROM (unnest(%(runs)s::bigint[], %(versions)s::bigint[]), jsonb_array_elements(%(payloads)s::jsonb),
                  jsonb_array_elements(%(given)s::jsonb)) AS i(run_id, version, payload, given)
  JOIN scheduler.job_runs r ON r.id = i.run_id
 WHERE CASE WHEN r.definition_version = i.version THEN r.payload <> i.payload
            ELSE EXISTS (SELECT FROM jsonb_each(i.given) g WHERE r.payload -> g.key IS DISTINCT FROM g.value) END
 ORDER BY i.run_id
 LIMIT 1

-- name: lock_for_cancel
-- Locks one live run, with what a cancel has to know.
SELECT r.id, r.state::text AS state, r.token, r.dispatched_at IS NOT NULL AS sent, r.definition_id, r.definition_version,
       r.locked_by IS NOT NULL AS claimed, COALESCE(r.first_step, 0) AS step
  FROM scheduler.runs_live r
 WHERE r.id = %(id)s::bigint
   FOR UPDATE

-- name: final_state
-- The state of a run that is in the history; its id came from the sequence before it ended, so a scan by id alone finds it.
SELECT h.state::text AS state FROM scheduler.runs_history h WHERE h.id = %(id)s::bigint LIMIT 1

-- name: pending_by_definition
-- What waits, by definition: for metrics, late runs and max_wait.
SELECT r.definition_id, r.definition_version, count(*) AS runs, min(r.scheduled_for) AS oldest
  FROM scheduler.runs_live r
 WHERE r.state = 'PENDING' AND r.scheduled_for <= %(now)s::timestamptz
 GROUP BY r.definition_id, r.definition_version

-- name: waiting_since
-- Runs of one definition that wait since before a time, never started.
SELECT r.id, r.token
  FROM scheduler.runs_live r
 WHERE r.state = 'PENDING' AND r.definition_id = %(definition_id)s::bigint AND r.definition_version = %(version)s::bigint
   AND GREATEST(r.scheduled_for, r.not_before) < %(before)s::timestamptz AND r.started_at IS NULL
 ORDER BY r.id
 LIMIT %(limit)s::integer

-- name: definitions_of
-- The definition, its version, and what an earlier step gave as its result, of each of some runs, live or finished.
SELECT r.id, r.definition_id, r.definition_version, r.result::text AS result FROM scheduler.job_runs r WHERE r.id = ANY(%(ids)s::bigint[])

-- name: kill_canceled
-- CANCEL_REQUESTED stays: an operator does not wait for the job; its cancel goes out again as a kill.
WITH moved AS (
    UPDATE scheduler.runs_live r
       SET cancel_mode = 'kill', cancel_until = CASE WHEN r.locked_by IS NOT NULL THEN now() END, version = r.version + 1
     WHERE r.id = %(id)s::bigint AND r.state = 'CANCEL_REQUESTED' AND r.cancel_mode <> 'kill'
    RETURNING r.id
)
INSERT INTO scheduler.job_events (run_id, type, from_state, to_state, message, actor)
SELECT id, 'kill_requested', 'CANCEL_REQUESTED', 'CANCEL_REQUESTED', %(reason)s::text, %(actor)s::text FROM moved
RETURNING run_id
