-- name: lock
-- Schedules by name, and all of some definitions, locked in the order of their ids. Nothing is joined here: after a wait PostgreSQL looks again at
-- the locked row alone, and one that has got another definition meanwhile would fall out of the join.
SELECT s.id
  FROM scheduler.schedules s
 WHERE s.name = ANY(%(names)s::text[]) OR s.definition_id = ANY(%(definition_ids)s::bigint[])
 ORDER BY s.id
   FOR UPDATE

-- name: locked
-- Locked schedules with their current definitions, in the order of their ids.
SELECT s.id, s.name, d.name AS job, s.version, s.spec, s.spec_hash, s.enabled, s.status, s.status_reason, s.status_actor, s.paused_until, s.created_at,
       s.next_run_at, s.last_run_at, s.fire_retry_count, d.id AS definition_id, d.version AS definition_version, d.enabled AS job_enabled,
       {{disabled_why}} AS job_disabled_why, {{definition_redact}} AS redact
  FROM scheduler.schedules s JOIN scheduler.job_definitions d ON d.id = s.definition_id
 WHERE s.id = ANY(%(ids)s::bigint[])
 ORDER BY s.id

-- name: moment
-- The time now, not that of the beginning of the transaction: what waited for a lock is an edit of after the wait.
SELECT clock_timestamp() AS now

-- name: create
-- New schedules; a name that was taken meanwhile has no row.
INSERT INTO scheduler.schedules (name, definition_id, spec, spec_hash, timezone, enabled, next_run_at, scope, scope_id, updated_by)
SELECT i.name, i.definition_id, i.spec, i.hash, i.timezone, i.enabled, i.next_run_at, i.scope, i.scope_id, %(actor)s::text
  FROM jsonb_to_recordset(%(rows)s::jsonb)
       AS i(name text, definition_id bigint, spec jsonb, hash text, timezone text, enabled boolean, next_run_at timestamptz, scope text,
            scope_id text)
    ON CONFLICT (name) DO NOTHING
RETURNING name, version

-- name: update
-- version n → n + 1 of schedules that are locked; failed → active.
UPDATE scheduler.schedules s
   SET definition_id = i.definition_id, spec = i.spec, spec_hash = i.hash, timezone = i.timezone, enabled = i.enabled,
       next_run_at = i.next_run_at, scope = i.scope, scope_id = i.scope_id,
       version = s.version + 1, status = CASE WHEN s.status = 'failed' THEN 'active' ELSE s.status END,
       status_reason = CASE WHEN s.status = 'failed' THEN '' ELSE s.status_reason END,
       status_actor = CASE WHEN s.status = 'failed' THEN '' ELSE s.status_actor END, fire_retry_count = 0,
       fire_retry_at = NULL, last_error = '', updated_at = now(), updated_by = %(actor)s::text
  FROM jsonb_to_recordset(%(rows)s::jsonb)
       AS i(id bigint, version bigint, definition_id bigint, spec jsonb, hash text, timezone text, enabled boolean, next_run_at timestamptz,
            scope text, scope_id text)
 WHERE s.id = i.id AND s.version = i.version
RETURNING s.name, s.version

-- name: renew
-- version n → n + 1 of schedules that are locked and whose job was enabled or disabled: their next slot is computed again.
UPDATE scheduler.schedules s
   SET next_run_at = i.next_run_at, version = s.version + 1
  FROM unnest(%(ids)s::bigint[], %(versions)s::bigint[], %(nexts)s::timestamptz[]) AS i(id, version, next_run_at)
 WHERE s.id = i.id AND s.version = i.version
RETURNING s.name, s.version

-- name: set_status
-- active | paused | failed → paused, paused | failed → active: version n → n + 1 of a schedule that is locked.
UPDATE scheduler.schedules s
   SET status = %(status)s::text, status_reason = %(reason)s::text, status_actor = %(status_actor)s::text,
       paused_until = %(until)s::timestamptz, next_run_at = %(next)s::timestamptz,
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
-- Runs of future slots of some schedules that were not sent, locked by id.
SELECT r.id, r.schedule_id, r.slot, r.state::text AS state, r.token, r.attempt, r.lost_count
  FROM scheduler.runs_live r
 WHERE r.schedule_id = ANY(%(ids)s::bigint[]) AND r.origin = 'slot' AND r.slot > %(now)s::timestamptz AND r.state IN ('PENDING', 'ASSIGNED')
   AND r.dispatched_at IS NULL
 ORDER BY r.id
   FOR UPDATE
