-- name: lock_named
-- Schedules by name with their current definitions, locked in the order of their ids.
SELECT s.id, s.name, s.version, s.spec, s.spec_hash, s.enabled, s.status, s.status_reason, s.status_actor, s.next_run_at, s.last_run_at,
       s.fire_retry_count, d.id AS definition_id, d.version AS definition_version, d.enabled AS job_enabled
  FROM scheduler.schedules s JOIN scheduler.job_definitions d ON d.id = s.definition_id
 WHERE s.name = ANY(%(names)s::text[])
 ORDER BY s.id
   FOR UPDATE OF s

-- name: moment
-- The time now, not that of the beginning of the transaction: what waited for a lock is an edit of after the wait.
SELECT clock_timestamp() AS now

-- name: create
-- A new schedule; no row when the name was taken meanwhile.
INSERT INTO scheduler.schedules (name, definition_id, spec, spec_hash, timezone, enabled, next_run_at, scope, scope_id, updated_by)
VALUES (%(name)s::text, %(definition_id)s::bigint, %(spec)s::jsonb, %(hash)s::text, %(timezone)s::text, %(enabled)s::boolean,
        %(next)s::timestamptz, %(scope)s::text, %(scope_id)s::text, %(actor)s::text)
    ON CONFLICT (name) DO NOTHING
RETURNING id, version

-- name: update
-- version n → n + 1 of a schedule that is locked; failed → active.
UPDATE scheduler.schedules s
   SET definition_id = %(definition_id)s::bigint, spec = %(spec)s::jsonb, spec_hash = %(hash)s::text, timezone = %(timezone)s::text,
       enabled = %(enabled)s::boolean, next_run_at = %(next)s::timestamptz, scope = %(scope)s::text, scope_id = %(scope_id)s::text,
       version = s.version + 1, status = CASE WHEN s.status = 'failed' THEN 'active' ELSE s.status END,
       status_reason = CASE WHEN s.status = 'failed' THEN '' ELSE s.status_reason END,
       status_actor = CASE WHEN s.status = 'failed' THEN '' ELSE s.status_actor END, fire_retry_count = 0,
       fire_retry_at = NULL, last_error = '', updated_at = now(), updated_by = %(actor)s::text
 WHERE s.id = %(id)s::bigint AND s.version = %(version)s::bigint
RETURNING s.version

-- name: set_status
-- active | failed → paused, paused | failed → active: version n → n + 1 of a schedule that is locked.
UPDATE scheduler.schedules s
   SET status = %(status)s::text, status_reason = %(reason)s::text, status_actor = %(status_actor)s::text, next_run_at = %(next)s::timestamptz,
       version = s.version + 1, fire_retry_count = 0, fire_retry_at = NULL, last_error = '', updated_at = now(), updated_by = %(actor)s::text
 WHERE s.id = %(id)s::bigint AND s.version = %(version)s::bigint AND s.status = %(expected)s::text
RETURNING s.version

-- name: delete
-- A schedule that is locked goes away; what its ledger and one of the same name need is kept.
WITH gone AS (
    DELETE FROM scheduler.schedules s WHERE s.id = %(id)s::bigint AND s.version = %(version)s::bigint RETURNING s.id, s.name, s.spec
)
INSERT INTO scheduler.schedules_deleted (id, name, spec, settled_until, deleted_by, reason)
SELECT id, name, spec, %(settled_until)s::timestamptz, %(actor)s::text, %(reason)s::text FROM gone
RETURNING id

-- name: settled_until
-- Up to where deleted schedules of these names were settled.
SELECT x.name, max(x.settled_until) AS settled_until
  FROM scheduler.schedules_deleted x
 WHERE x.name = ANY(%(names)s::text[])
 GROUP BY x.name

-- name: unstarted_ahead
-- Runs of future slots of a schedule that were not sent, locked by id.
SELECT r.id, r.state::text AS state, r.token, r.attempt, r.lost_count
  FROM scheduler.runs_live r
 WHERE r.schedule_id = %(id)s::bigint AND r.origin = 'slot' AND r.slot > %(now)s::timestamptz AND r.state IN ('PENDING', 'ASSIGNED')
   AND r.dispatched_at IS NULL
 ORDER BY r.id
   FOR UPDATE

-- name: names
-- All names, for suggestions.
SELECT s.name FROM scheduler.schedules s ORDER BY s.name LIMIT 10000
