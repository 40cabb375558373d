-- name: note
-- What heartbeats say of attempts that PostgreSQL holds for their executors: those that they do not name, and those whose outcome is
-- quarantined. What they name otherwise, or what is not held any more, is forgotten. `complete` are incarnations that name everything.
-- The dispatch is a few seconds old, so that its order had time to arrive.
WITH named AS MATERIALIZED (
    SELECT * FROM unnest(%(named_by)s::uuid[], %(named_runs)s::bigint[], %(named_tokens)s::bigint[]) AS n (incarnation, run_id, token)
), refused AS MATERIALIZED (
    SELECT * FROM unnest(%(refused_by)s::uuid[], %(refused_runs)s::bigint[], %(refused_tokens)s::bigint[], %(messages)s::text[])
        AS q (incarnation, run_id, token, message)
), held AS MATERIALIZED (
    SELECT r.id AS run_id, r.token, r.assigned_incarnation AS incarnation
      FROM scheduler.runs_live r
     WHERE r.assigned_incarnation = ANY (%(complete)s::uuid[]) AND r.state IN ('ASSIGNED', 'RUNNING', 'CANCEL_REQUESTED')
       AND r.token IS NOT NULL AND r.dispatched_at < now() - make_interval(secs => %(grace)s::double precision)
), found AS MATERIALIZED (
    SELECT h.run_id, h.token, h.incarnation, q.run_id IS NOT NULL AS quarantined, coalesce(q.message, '') AS message
      FROM held h
      LEFT JOIN refused q ON q.incarnation = h.incarnation AND q.run_id = h.run_id AND q.token = h.token
     WHERE q.run_id IS NOT NULL
        OR NOT EXISTS (SELECT 1 FROM named n WHERE n.incarnation = h.incarnation AND n.run_id = h.run_id AND n.token = h.token)
), cleared AS (
    DELETE FROM scheduler.unresolved_attempts u
     WHERE u.incarnation = ANY (%(complete)s::uuid[])
       AND NOT EXISTS (SELECT 1 FROM found f WHERE f.run_id = u.run_id AND f.token = u.token)
), noted AS (
    INSERT INTO scheduler.unresolved_attempts AS u (run_id, token, incarnation, quarantined, message)
    SELECT f.run_id, f.token, f.incarnation, f.quarantined, f.message FROM found f ORDER BY f.run_id
        ON CONFLICT (run_id, token) DO UPDATE
       SET heartbeats = CASE WHEN u.quarantined = EXCLUDED.quarantined THEN u.heartbeats + 1 ELSE 1 END,
           first_at = CASE WHEN u.quarantined = EXCLUDED.quarantined THEN u.first_at ELSE now() END,
           quarantined = EXCLUDED.quarantined, message = EXCLUDED.message, incarnation = EXCLUDED.incarnation
    RETURNING u.heartbeats
)
SELECT count(*) FILTER (WHERE heartbeats = %(heartbeats)s::integer) AS due FROM noted;

-- name: page
-- Noted attempts with the state of their runs, by id, and the address of their executor. A state of '' is a run that this executor does not
-- hold under this token any more.
SELECT u.run_id, u.token, u.incarnation::text AS incarnation, u.quarantined, u.heartbeats, u.message,
       extract(epoch FROM now() - u.first_at)::double precision AS seconds, coalesce(r.state::text, '') AS state,
       coalesce(e.worker_id, 0) AS worker_id, coalesce(e.grpc_host, '') AS grpc_host, coalesce(e.grpc_port, 0) AS grpc_port
  FROM scheduler.unresolved_attempts u
  LEFT JOIN scheduler.executors e ON e.incarnation = u.incarnation AND e.state <> 'off'
  LEFT JOIN scheduler.runs_live r ON r.id = u.run_id AND r.token = u.token AND r.assigned_incarnation = e.incarnation
        AND r.state::text IN ('ASSIGNED', 'RUNNING', 'CANCEL_REQUESTED')
 WHERE u.run_id > %(after)s::bigint
 ORDER BY u.run_id, u.token
 LIMIT %(limit)s::integer;

-- name: still
-- Of some attempts those that heartbeats still say the same of, locked, so that none of them is cleared meanwhile.
SELECT u.run_id, u.token
  FROM scheduler.unresolved_attempts u
  JOIN unnest(%(runs)s::bigint[], %(tokens)s::bigint[], %(quarantined)s::boolean[]) AS i (run_id, token, quarantined)
       USING (run_id, token, quarantined)
 ORDER BY u.run_id, u.token
   FOR UPDATE OF u;

-- name: forget
-- Attempts that are resolved.
DELETE FROM scheduler.unresolved_attempts u
 USING unnest(%(runs)s::bigint[], %(tokens)s::bigint[]) AS i (run_id, token)
 WHERE u.run_id = i.run_id AND u.token = i.token;
