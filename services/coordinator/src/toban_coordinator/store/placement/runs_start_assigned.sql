-- name: start_assigned
-- ∅ → PENDING → ASSIGNED and sent, in one statement: runs on demand that are due now and whose executors are known before they are made.
-- All of them or none: none, and one row without an id, when a definition is not the current, enabled one any more, when an executor does not
-- take work, is not fresh or has a successor, or when an idempotency key is taken. Locks, fence and rows as in `place` of runs_assign.sql.
WITH fence AS MATERIALIZED (
    {{fence}}
), takers AS MATERIALIZED (
    SELECT e.incarnation, e.worker_id
      FROM scheduler.executors e
     WHERE e.incarnation = ANY(%(executors)s::uuid[]) AND e.state = 'on'
       AND NOT EXISTS (SELECT 1 FROM scheduler.executors o
                        WHERE o.instance = e.instance AND o.state <> 'off' AND o.incarnation <> e.incarnation)
       AND e.last_heartbeat_at >= now() - make_interval(secs => %(fresh_seconds)s::double precision) AND (SELECT count(*) FROM fence) = 1
     ORDER BY e.incarnation
       FOR SHARE
), wanted AS MATERIALIZED (
    SELECT u.*
      FROM ROWS FROM (
               unnest(%(definition_ids)s::bigint[], %(versions)s::bigint[], %(jobs)s::text[], %(priorities)s::integer[],
                      %(max_attempts)s::integer[], %(max_lost)s::integer[], %(timeouts)s::integer[], %(tokens)s::bigint[],
                      %(incarnations)s::uuid[]),
               jsonb_array_elements(%(payloads)s::jsonb),
               jsonb_array_elements_text(%(keys)s::jsonb),
               jsonb_array_elements_text(%(own_keys)s::jsonb),
               jsonb_array_elements_text(%(scopes)s::jsonb),
               jsonb_array_elements_text(%(scope_ids)s::jsonb))
           WITH ORDINALITY
           AS u(definition_id, version, job, priority, max_attempts, max_lost, timeout, token, incarnation, payload, key, own_key, scope, scope_id, ord)
), refused AS MATERIALIZED (
    SELECT 1 FROM (SELECT DISTINCT definition_id, version FROM wanted) w
             LEFT JOIN scheduler.job_definitions d ON d.id = w.definition_id AND d.version = w.version AND d.enabled
     WHERE d.id IS NULL
    UNION ALL
    SELECT 1 FROM wanted w JOIN scheduler.run_idempotency k ON k.key IN (w.key, w.own_key)
), input AS MATERIALIZED (
    SELECT nextval('scheduler.run_id_seq') AS id, w.*, e.worker_id
      FROM wanted w JOIN takers e ON e.incarnation = w.incarnation
     WHERE NOT EXISTS (SELECT 1 FROM refused) AND (SELECT count(*) FROM takers) = cardinality(%(executors)s::uuid[])
), claimed AS (
    -- A key that another transaction takes at this very moment ends the statement by its unique violation: nothing is made.
    INSERT INTO scheduler.run_idempotency (key, run_id) SELECT key, id FROM input WHERE key IS NOT NULL
), sent AS (
    INSERT INTO scheduler.runs_live (id, definition_id, definition_version, job_name, origin, scheduled_for, state, priority, max_attempts, max_lost,
                                     timeout_seconds, payload, idempotency_key, log_ref, created_by, token, log_day, leader_epoch,
                                     assigned_incarnation, assigned_worker_id, assigned_at, dispatched_at, scope, scope_id)
    SELECT i.id, i.definition_id, i.version, i.job, 'demand', now(), 'ASSIGNED', i.priority, i.max_attempts, i.max_lost, i.timeout, i.payload, i.key,
           'toban-log:' || i.id, %(actor)s::text, i.token, (now() AT TIME ZONE 'UTC')::date, %(fence_epoch)s::bigint, i.incarnation, i.worker_id,
           now(), now(), i.scope, i.scope_id
      FROM input i
    RETURNING id, token, attempt, log_day, dispatched_at, assigned_incarnation, assigned_worker_id, job_name
), attempt AS (
    {{attempts_of_sent}}
), started AS (
    SELECT id, job_name AS job, NULL::bigint AS rerun_of FROM sent
), noted AS (
    {{note_starts}}
)
SELECT i.id, i.ord, s.log_day::text AS log_day
  FROM fence LEFT JOIN (input i JOIN sent s ON s.id = i.id) ON true
 ORDER BY i.ord
