-- name: stored
-- What operators set, with why and by whom; all, or the one called `name`.
SELECT l.name, l.value, l.reason, l.version, l.updated_at, l.updated_by
  FROM scheduler.limits l
 WHERE %(name)s::text = '' OR l.name = %(name)s::text
 ORDER BY l.name

-- name: lock
-- One change of this limit at a time, also of one that is not stored yet.
SELECT pg_advisory_xact_lock(hashtext('scheduler.limits ' || %(name)s::text))

-- name: store
-- ∅ or a value → a value.
INSERT INTO scheduler.limits AS l (name, value, reason, updated_by)
VALUES (%(name)s::text, %(value)s::integer, %(reason)s::text, %(actor)s::text)
    ON CONFLICT (name) DO UPDATE
       SET value = EXCLUDED.value, reason = EXCLUDED.reason, updated_by = EXCLUDED.updated_by, updated_at = now(), version = l.version + 1

-- name: remove
-- A value → ∅.
DELETE FROM scheduler.limits l WHERE l.name = %(name)s::text

-- name: users_of_pool
-- Current definitions that take of a pool, and how much; the heaviest first.
SELECT d.name, (d.spec -> 'concurrency' -> 'pools' ->> %(pool)s::text)::integer AS weight
  FROM scheduler.job_definitions d
 WHERE d.spec ? 'concurrency' AND d.spec -> 'concurrency' -> 'pools' ? %(pool)s::text AND d.deleted_at IS NULL
 ORDER BY 2 DESC, 1
 LIMIT 20

-- name: queues
-- How many runs wait for limits, since when the first, and how much the heaviest needs.
SELECT k.key, count(r.id) AS waiting, min(r.deferred_at) AS since, max(r.deferred_weight) AS heaviest
  FROM unnest(%(keys)s::text[]) AS k(key) LEFT JOIN scheduler.runs_live r ON r.state = 'DEFERRED' AND r.deferred_on = k.key
 GROUP BY k.key

-- name: blocked
-- For how long runs have waited for one of these limits while it let none start, seconds; the longest.
SELECT max(extract(epoch FROM now() - GREATEST(w.since, h.started)))::double precision AS seconds
  FROM unnest(%(keys)s::text[]) AS k(key)
 CROSS JOIN LATERAL (SELECT min(r.deferred_at) AS since FROM scheduler.runs_live r WHERE r.state = 'DEFERRED' AND r.deferred_on = k.key) w
 CROSS JOIN LATERAL (
    SELECT max(r.dispatched_at) AS started
      FROM scheduler.limit_holds o JOIN scheduler.runs_live r ON r.id = o.run_id AND r.token = o.token
     WHERE o.key = k.key) h
 WHERE w.since IS NOT NULL

-- name: holders
-- Live runs that hold a limit, the longest first.
SELECT r.id, r.job_name, r.state::text AS state, h.weight, r.scope, r.scope_id, COALESCE(r.dispatched_at, r.started_at) AS since, e.node_id AS executor
  FROM scheduler.limit_holds h
  JOIN scheduler.runs_live r ON {{holds_limit}}
  LEFT JOIN scheduler.executors e ON e.incarnation = r.assigned_incarnation
 WHERE h.key = %(key)s::text
 ORDER BY 7, r.id
 LIMIT %(limit)s::integer

-- name: waiting
-- Runs that wait for a limit, the longest first.
SELECT r.id, r.job_name, r.state::text AS state, r.deferred_weight AS weight, r.scope, r.scope_id, r.deferred_at AS since, NULL AS executor
  FROM scheduler.runs_live r
 WHERE r.state = 'DEFERRED' AND r.deferred_on = %(key)s::text
 ORDER BY r.deferred_at, r.id
 LIMIT %(limit)s::integer
