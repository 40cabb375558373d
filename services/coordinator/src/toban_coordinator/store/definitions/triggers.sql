-- name: lock_named
-- Triggers by name, locked in the order of their ids.
SELECT g.id, g.name, g.version, g.spec_hash, g.definition_id, g.spec,
       (SELECT {{definition_redact}} FROM scheduler.job_definitions d WHERE d.id = g.definition_id) AS redact
  FROM scheduler.event_triggers g
 WHERE g.name = ANY(%(names)s::text[])
 ORDER BY g.id
   FOR UPDATE

-- name: create
-- A new trigger; no row when the name was taken meanwhile.
INSERT INTO scheduler.event_triggers (name, event_type, run_end, definition_id, enabled, spec, spec_hash, updated_by)
VALUES (%(name)s::text, %(event_type)s::text, %(run_end)s::boolean, %(definition_id)s::bigint, %(enabled)s::boolean, %(spec)s::jsonb, %(hash)s::text, %(actor)s::text)
    ON CONFLICT (name) DO NOTHING
RETURNING version

-- name: update
-- version n → n + 1 of a trigger that is locked; an edit also clears its last error.
UPDATE scheduler.event_triggers g
   SET event_type = %(event_type)s::text, run_end = %(run_end)s::boolean, definition_id = %(definition_id)s::bigint, enabled = %(enabled)s::boolean, spec = %(spec)s::jsonb,
       spec_hash = %(hash)s::text, version = g.version + 1, last_error = '', updated_at = now(), updated_by = %(actor)s::text
 WHERE g.id = %(id)s::bigint AND g.version = %(version)s::bigint
RETURNING g.version

-- name: delete
-- A trigger → ∅; what it said, no row when there is none of this name.
DELETE FROM scheduler.event_triggers g WHERE g.name = %(name)s::text
RETURNING g.spec, (SELECT {{definition_redact}} FROM scheduler.job_definitions d WHERE d.id = g.definition_id) AS redact

-- name: count_of_type
-- How many triggers other than some wait for a type of event.
SELECT g.event_type, count(*) AS triggers
  FROM scheduler.event_triggers g
 WHERE g.event_type = ANY(%(types)s::text[]) AND NOT g.name = ANY(%(names)s::text[])
 GROUP BY g.event_type

-- name: of_types
-- Enabled triggers of some types of event, with the definitions that they start now.
SELECT g.id, g.name, g.version, g.event_type, g.spec, g.last_error, d.id AS definition_id, d.version AS definition_version, d.name AS job,
       d.enabled AS job_enabled, {{disabled_why}} AS job_disabled_why
  FROM scheduler.event_triggers g JOIN scheduler.job_definitions d ON d.id = g.definition_id
 WHERE g.event_type = ANY(%(types)s::text[]) AND g.enabled
 ORDER BY g.name

-- name: note_errors
-- What went wrong last with some triggers; '' clears it. A row that is being edited is left out.
WITH input AS (
    SELECT * FROM unnest(%(ids)s::bigint[], %(versions)s::bigint[], %(errors)s::text[]) AS i(id, version, error)
), free AS (
    SELECT g.id FROM scheduler.event_triggers g WHERE g.id = ANY(%(ids)s::bigint[]) ORDER BY g.id FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE scheduler.event_triggers g
   SET last_error = i.error
  FROM input i JOIN free f ON f.id = i.id
 WHERE g.id = i.id AND g.version = i.version AND g.last_error <> i.error

-- name: page
-- Triggers after a name, of one type or of all, or the one called `only`.
SELECT g.name, d.name AS job, g.event_type, g.enabled, g.spec::text AS spec, g.version, g.updated_at, g.last_error,
       {{definition_redact}} AS redact
  FROM scheduler.event_triggers g JOIN scheduler.job_definitions d ON d.id = g.definition_id
 WHERE g.name > %(after)s::text AND (%(event_type)s::text = '' OR g.event_type = %(event_type)s::text)
   AND (%(only)s::text = '' OR g.name = %(only)s::text)
   AND (%(job)s::text = '' OR d.name = %(job)s::text)
 ORDER BY g.name
 LIMIT %(limit)s::integer
