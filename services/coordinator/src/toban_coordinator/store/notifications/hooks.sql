-- name: hooks
-- Every hook, or the one called `name`.
SELECT h.id, h.name, h.kind, h.secret, h.secrets, h.event_type, h.type_from, h.events, h.fields, h.enabled, h.rate_per_minute, h.last_event_at, h.version,
       h.updated_at, h.updated_by
  FROM scheduler.hooks h
 WHERE %(name)s::text = '' OR h.name = %(name)s::text
 ORDER BY h.name

-- name: lock
-- The hook to change, locked, so that its secrets are read and written by one change at a time.
SELECT h.id FROM scheduler.hooks h WHERE h.name = %(name)s::text FOR UPDATE

-- name: create
-- ∅ → a hook.
INSERT INTO scheduler.hooks (name, kind, secret, event_type, type_from, events, fields, enabled, rate_per_minute, created_by, updated_by)
VALUES (%(name)s::text, %(kind)s::text, %(secret)s::text, %(event_type)s::text, %(type_from)s::text, %(events)s::jsonb, %(fields)s::text[],
        %(enabled)s::boolean, %(rate)s::integer, %(actor)s::text, %(actor)s::text)
    ON CONFLICT (name) DO NOTHING

-- name: change
-- A hook → the same with other values; those that are NULL stay.
UPDATE scheduler.hooks h
   SET event_type = COALESCE(%(event_type)s::text, h.event_type), type_from = COALESCE(%(type_from)s::text, h.type_from),
       events = COALESCE(%(events)s::jsonb, h.events), fields = COALESCE(%(fields)s::text[], h.fields),
       enabled = COALESCE(%(enabled)s::boolean, h.enabled), rate_per_minute = COALESCE(%(rate)s::integer, h.rate_per_minute),
       secrets = COALESCE(%(secrets)s::integer, h.secrets), version = h.version + 1, updated_at = now(), updated_by = %(actor)s::text
 WHERE h.name = %(name)s::text

-- name: remove
-- A hook → ∅.
DELETE FROM scheduler.hooks h WHERE h.name = %(name)s::text RETURNING h.secret

-- name: lock_version
-- The hook whose message was checked, unless it has changed since. Locked: its messages are accepted one after the other, on all coordinators.
SELECT h.id FROM scheduler.hooks h WHERE h.id = %(id)s::bigint AND h.version = %(version)s::bigint FOR UPDATE

-- name: event_of
-- The event that has a key, whether it is processed or not.
SELECT COALESCE((SELECT min(e.id) FROM scheduler.events e WHERE e.event_type = %(event_type)s::text AND e.dedupe_key = %(key)s::text),
                (SELECT k.event_id FROM scheduler.event_keys k WHERE k.event_type = %(event_type)s::text AND k.dedupe_key = %(key)s::text)) AS id

-- name: take
-- One message of what the rate allows: ten seconds' worth at once, at least one. No row: nothing is left.
UPDATE scheduler.hooks h
   SET allowance = a.available - 1, refilled_at = now(), last_event_at = now()
  FROM (SELECT o.id, LEAST(GREATEST(1, o.rate_per_minute / 6.0),
                           o.allowance + GREATEST(0, extract(epoch FROM now() - o.refilled_at)) * o.rate_per_minute / 60.0) AS available
          FROM scheduler.hooks o WHERE o.id = %(id)s::bigint) a
 WHERE h.id = a.id AND a.available >= 1
