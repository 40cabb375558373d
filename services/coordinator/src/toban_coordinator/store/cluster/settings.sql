-- name: stored
-- Every setting that was ever changed.
SELECT s.name, s.value, s.version, s.updated_at, s.updated_by FROM scheduler.settings s

-- name: lock_changes
-- One change of settings at a time; readers do not wait.
SELECT pg_advisory_xact_lock(hashtext('scheduler.settings'))

-- name: create
-- A setting that was never changed -> its first stored value; no row when another transaction was first.
INSERT INTO scheduler.settings (name, value, updated_by)
SELECT %(name)s::text, %(value)s::jsonb, %(actor)s::text WHERE %(version)s::bigint = 0
ON CONFLICT (name) DO NOTHING
RETURNING value, version, updated_at, updated_by

-- name: change
-- A stored setting of that version -> the new value and the next version; no row when it has another version.
UPDATE scheduler.settings
   SET value = %(value)s::jsonb, version = version + 1, updated_at = now(), updated_by = %(actor)s::text
 WHERE name = %(name)s::text AND version = %(version)s::bigint
RETURNING value, version, updated_at, updated_by
