-- name: defer
-- PENDING → DEFERRED: a limit has no room for the run, or others wait for it.
WITH input AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::bigint[], %(keys)s::text[], %(weights)s::integer[], %(untils)s::timestamptz[], %(messages)s::text[])
                  AS i(id, key, weight, wait_until, message)
), locked AS MATERIALIZED (
    {{lock_runs}}
), moved AS (
    UPDATE scheduler.runs_live r
       SET state = 'DEFERRED', deferred_on = i.key, deferred_weight = i.weight, deferred_at = COALESCE(r.deferred_at, now()), resumed_at = NULL,
           wait_until = i.wait_until, version = r.version + 1
      FROM input i JOIN locked l ON l.id = i.id
     WHERE r.id = ANY(%(ids)s::bigint[]) AND r.id = i.id AND r.state::text = 'PENDING'
    RETURNING r.id, i.message
), event AS (
    INSERT INTO scheduler.job_events (run_id, type, from_state, to_state, message) SELECT id, 'deferred', 'PENDING', 'DEFERRED', message FROM moved
)
SELECT id FROM moved

-- name: resume
-- DEFERRED → PENDING: its limit has room, which is reserved for it.
WITH locked AS MATERIALIZED (
    {{lock_runs}}
), moved AS (
    UPDATE scheduler.runs_live r
       SET state = 'PENDING', resumed_at = now(), wait_until = NULL, version = r.version + 1
      FROM locked l
     WHERE r.id = ANY(%(ids)s::bigint[]) AND r.id = l.id AND r.state::text = 'DEFERRED'
    RETURNING r.id, r.deferred_on
), event AS (
    INSERT INTO scheduler.job_events (run_id, type, from_state, to_state, message)
    SELECT id, 'resumed', 'DEFERRED', 'PENDING', 'limit ' || deferred_on || ' has room' FROM moved
)
SELECT id FROM moved

-- name: keys
-- The limits that runs are deferred on, after one of them. One entry of the index is read for each: limits are few, runs may be many.
WITH RECURSIVE keys AS (
    (SELECT r.deferred_on AS key FROM scheduler.runs_live r
      WHERE r.state = 'DEFERRED' AND r.deferred_on > %(after)s::text
      ORDER BY r.deferred_on LIMIT 1)
    UNION ALL
    SELECT n.key
      FROM keys k CROSS JOIN LATERAL (
        SELECT r.deferred_on AS key FROM scheduler.runs_live r
         WHERE r.state = 'DEFERRED' AND r.deferred_on > k.key
         ORDER BY r.deferred_on LIMIT 1) n
)
SELECT k.key FROM keys k LIMIT %(limit)s::integer

-- name: heads
-- The first runs of each scope that wait for a limit, most urgent first and scopes in turn.
WITH RECURSIVE queue AS NOT MATERIALIZED (
    SELECT r.priority * 2 - r.catch_up::integer AS rank, r.scope, r.scope_id, r.scheduled_for, r.id, r.deferred_weight
      FROM scheduler.runs_live r
     WHERE r.state = 'DEFERRED' AND r.deferred_on = %(key)s::text
), scopes AS (
    {{fair_scopes}}
)
SELECT q.rank, q.scope, q.scope_id, r.id, r.deferred_weight AS weight
  FROM (SELECT * FROM scopes LIMIT %(scopes)s::integer) q
 CROSS JOIN LATERAL (
    SELECT r.id, r.deferred_weight FROM queue r
     WHERE r.rank = q.rank AND r.scope = q.scope AND r.scope_id = q.scope_id AND r.deferred_weight <= %(largest)s::integer
     ORDER BY r.scheduled_for, r.id LIMIT %(depth)s::integer) r

-- name: held_by_scope
-- How much of a limit the runs of each scope take: sent ones, and resumed ones that were not sent yet.
SELECT r.scope, r.scope_id, sum(r.weight)::bigint AS held
  FROM (SELECT r.scope, r.scope_id, h.weight
          FROM scheduler.limit_holds h JOIN scheduler.runs_live r ON {{holds_limit}} WHERE h.key = %(key)s::text
        UNION ALL
        SELECT l.scope, l.scope_id, l.deferred_weight FROM scheduler.runs_live l WHERE l.state = 'PENDING' AND l.deferred_on = %(key)s::text) r
 GROUP BY r.scope, r.scope_id

-- name: overdue
-- Deferred runs that have waited for too long.
SELECT r.id, r.definition_id, r.definition_version AS version, r.scheduled_for, r.started_at IS NOT NULL AS started
  FROM scheduler.runs_live r
 WHERE r.state = 'DEFERRED' AND r.wait_until < %(now)s::timestamptz
 ORDER BY r.wait_until
 LIMIT %(limit)s::integer

-- name: runs_before
-- How many runs of a queue go before one of it, counted up to a bound: those of a higher rank, and earlier ones of its scope. The queue is that of
-- a limit (`key`), or without one that of the runs that are due.
WITH queue AS NOT MATERIALIZED (
    {{queue_of_key}}
)
SELECT (SELECT count(*) FROM (SELECT 1 FROM queue q WHERE q.rank > %(rank)s::integer LIMIT %(most)s::integer) n) AS more_urgent,
       (SELECT count(*)
          FROM (SELECT 1 FROM queue q
                 WHERE q.rank = %(rank)s::integer AND q.scope = %(scope)s::text AND q.scope_id = %(scope_id)s::text
                   AND (q.scheduled_for, q.id) < (%(scheduled_for)s::timestamptz, %(id)s::bigint)
                 LIMIT %(most)s::integer) n) AS earlier

-- name: scopes_in_turn
-- The scopes of one rank that take turns in a queue, and how many runs of each wait, counted up to a bound.
WITH RECURSIVE queue AS NOT MATERIALIZED (
    SELECT * FROM ({{queue_of_key}}) k WHERE k.rank = %(rank)s::integer
), scopes AS (
    {{fair_scopes}}
)
SELECT s.scope, s.scope_id,
       (SELECT count(*)
          FROM (SELECT 1 FROM queue q WHERE q.scope = s.scope AND q.scope_id = s.scope_id LIMIT %(most)s::integer) n) AS waiting
  FROM (SELECT * FROM scopes LIMIT %(limit)s::integer) s

-- fragment: queue_of_key
-- The runs that wait for a limit, or that are due and wait for none.
SELECT r.priority * 2 - r.catch_up::integer AS rank, r.scope, r.scope_id, r.scheduled_for, r.id
  FROM scheduler.runs_live r
 WHERE %(key)s::text <> '' AND r.state = 'DEFERRED' AND r.deferred_on = %(key)s::text
UNION ALL
SELECT r.priority * 2 - r.catch_up::integer, r.scope, r.scope_id, r.scheduled_for, r.id
  FROM scheduler.runs_live r
 WHERE %(key)s::text = '' AND r.state = 'PENDING' AND r.scheduled_for <= now() AND (r.not_before IS NULL OR r.not_before <= now())
