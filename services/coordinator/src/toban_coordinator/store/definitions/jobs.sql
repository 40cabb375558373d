-- name: lock_current
-- The current definitions of some names, locked in the order of their ids until the transaction ends.
SELECT d.id, d.name, d.version, d.enabled, d.spec, d.spec_hash, d.disabled_at, d.disabled_by, d.disabled_reason,
       d.disabled_until, {{disabled_why}} AS disabled_why
  FROM scheduler.job_definitions d
 WHERE d.name = ANY(%(names)s::text[])
 ORDER BY d.id
   FOR UPDATE

-- name: heads
-- Id, version, whether enabled and why not of some names: what enqueue asks each time.
SELECT d.id, d.name, d.version, d.enabled, {{disabled_why}} AS disabled_why FROM scheduler.job_definitions d WHERE d.name = ANY(%(names)s::text[])

-- name: starters
-- Schedules and triggers of some definitions, the first few of each.
SELECT d.name, u.name AS used_by
  FROM scheduler.job_definitions d
  CROSS JOIN LATERAL (
       (SELECT 'schedule ' || s.name AS name FROM scheduler.schedules s WHERE s.definition_id = d.id ORDER BY 1 LIMIT 3)
       UNION ALL
       (SELECT 'trigger ' || g.name FROM scheduler.event_triggers g WHERE g.definition_id = d.id ORDER BY 1 LIMIT 3)) u
 WHERE d.name = ANY(%(names)s::text[])
 ORDER BY 1, 2

-- name: stored_payloads
-- The payloads of some schedules and triggers, with the definitions that they start.
SELECT 'Schedule' AS kind, s.name, s.definition_id, s.spec -> 'payload' AS payload FROM scheduler.schedules s WHERE s.name = ANY(%(names)s::text[])
UNION ALL
SELECT 'EventTrigger', g.name, g.definition_id, g.spec -> 'payload' FROM scheduler.event_triggers g WHERE g.name = ANY(%(names)s::text[])

-- name: payloads_of
-- The payloads that schedules and triggers of some definitions give. Disabled ones are checked by the apply that enables them; a schedule that
-- is paused or has failed is resumed without a check.
SELECT 'Schedule' AS kind, s.name, s.definition_id, s.spec -> 'payload' AS payload
  FROM scheduler.schedules s
 WHERE s.definition_id = ANY(%(ids)s::bigint[]) AND s.enabled
UNION ALL
SELECT 'EventTrigger', g.name, g.definition_id, g.spec -> 'payload'
  FROM scheduler.event_triggers g
 WHERE g.definition_id = ANY(%(ids)s::bigint[]) AND g.enabled
ORDER BY 1, 2

-- name: versions
-- Definitions as they were at some versions; these rows never change.
SELECT v.definition_id, v.version, v.spec
  FROM unnest(%(ids)s::bigint[], %(versions)s::bigint[]) AS i(id, version)
  JOIN scheduler.job_definition_versions v ON v.definition_id = i.id AND v.version = i.version

-- name: create
-- A new definition at version 1; no row when another transaction made that name first.
WITH made AS (
    INSERT INTO scheduler.job_definitions (name, enabled, spec, spec_hash, updated_by)
    VALUES (%(name)s::text, %(enabled)s::boolean, %(spec)s::jsonb, %(hash)s::text, %(actor)s::text)
        ON CONFLICT (name) DO NOTHING
    RETURNING id, version, enabled, spec, updated_by
), version AS (
    INSERT INTO scheduler.job_definition_versions (definition_id, version, spec, created_by) SELECT id, version, spec, updated_by FROM made
)
SELECT id, version, enabled FROM made

-- name: update
-- version n → n + 1 of a definition. One that a person disabled stays disabled.
WITH changed AS (
    UPDATE scheduler.job_definitions d
       SET version = d.version + 1, enabled = %(enabled)s::boolean AND d.disabled_at IS NULL, spec = %(spec)s::jsonb, spec_hash = %(hash)s::text, updated_at = now(),
           updated_by = %(actor)s::text
     WHERE d.id = %(id)s::bigint AND d.version = %(version)s::bigint
    RETURNING d.id, d.version, d.enabled, d.spec, d.updated_by
), version AS (
    INSERT INTO scheduler.job_definition_versions (definition_id, version, spec, created_by) SELECT id, version, spec, updated_by FROM changed
)
SELECT id, version, enabled FROM changed

-- name: disable
-- A definition that is locked, and that a person disabled at `before`, or no person when that is NULL → disabled.
UPDATE scheduler.job_definitions d
   SET enabled = false, disabled_at = clock_timestamp(), disabled_by = %(actor)s::text, disabled_reason = %(reason)s::text,
       disabled_until = %(until)s::timestamptz
 WHERE d.id = %(id)s::bigint AND d.version = %(version)s::bigint AND d.disabled_at IS NOT DISTINCT FROM %(before)s::timestamptz
   AND d.deleted_at IS NULL

-- name: enable
-- A definition that is locked, and that a person disabled → as its manifest says.
UPDATE scheduler.job_definitions d
   SET enabled = %(enabled)s::boolean, disabled_at = NULL, disabled_by = '', disabled_reason = '', disabled_until = NULL
 WHERE d.id = %(id)s::bigint AND d.version = %(version)s::bigint AND d.disabled_at IS NOT NULL AND d.deleted_at IS NULL

-- name: users
-- What uses a definition that is locked: its schedules, triggers that start it or wait for the end of its runs, and live runs that are not being canceled. Runs ahead of their slots are left out:
-- they go with their schedules.
SELECT ARRAY(SELECT s.name FROM scheduler.schedules s WHERE s.definition_id = %(id)s::bigint ORDER BY s.name LIMIT %(most)s::integer) AS schedules,
       ARRAY(SELECT g.name FROM scheduler.event_triggers g
              WHERE g.definition_id = %(id)s::bigint OR (g.run_end AND g.event_type = '@run-end:' || %(name)s::text)
              ORDER BY g.name LIMIT %(most)s::integer) AS triggers,
       ARRAY(SELECT r.id FROM scheduler.runs_live r
              WHERE r.definition_id = %(id)s::bigint AND r.state <> 'CANCEL_REQUESTED'
                AND NOT (r.origin = 'slot' AND r.slot > clock_timestamp() AND r.dispatched_at IS NULL)
              ORDER BY r.id LIMIT %(most)s::integer) AS runs

-- name: delete
-- A definition that is locked → deleted: its name is free, its versions stay for its runs.
UPDATE scheduler.job_definitions d
   SET name = 'deleted/' || d.id, deleted_name = d.name, deleted_at = now(), enabled = false, version = d.version + 1, updated_at = now(),
       updated_by = %(actor)s::text
 WHERE d.id = %(id)s::bigint AND d.version = %(version)s::bigint AND d.deleted_at IS NULL
RETURNING d.id

-- name: server_now
-- PostgreSQL's time: that of schedules.
SELECT now() AS now
