-- name: queue
-- An order that could not be delivered: it goes out with the answer to a heartbeat. One open order a (incarnation, kind, run, token).
INSERT INTO scheduler.executor_orders (incarnation, kind, run_id, token, payload, epoch, serial)
SELECT %(incarnation)s::uuid, %(kind)s::text, t.run_id, t.token, t.payload, %(epoch)s::bigint, %(serial)s::bigint
  FROM unnest(%(runs)s::bigint[], %(tokens)s::bigint[], %(payloads)s::jsonb[]) AS t (run_id, token, payload)
    ON CONFLICT (incarnation, kind, run_id, token) WHERE done_at IS NULL AND run_id IS NOT NULL DO NOTHING;

-- name: updates
-- For some incarnations: the smallest token there whose start is not confirmed; attempts that it says it holds and PostgreSQL does not hold for it; open
-- orders, oldest first. Of `complete` ones, which name all their attempts, also whether one is unresolved: dispatched a while ago and neither
-- held nor unanswered there, or noted as such before.
WITH smallest AS (
    SELECT r.assigned_incarnation AS incarnation, min(r.token) AS token
      FROM scheduler.runs_live r
     WHERE r.assigned_incarnation = ANY (%(incarnations)s::uuid[]) AND r.state = 'ASSIGNED' AND r.dispatched_at IS NOT NULL
     GROUP BY r.assigned_incarnation
), missing AS (
    SELECT h.incarnation, jsonb_agg(jsonb_build_array(h.run_id, h.token)) AS attempts
      FROM unnest(%(held_by)s::uuid[], %(runs)s::bigint[], %(tokens)s::bigint[]) AS h (incarnation, run_id, token)
     WHERE NOT EXISTS (SELECT 1 FROM scheduler.runs_live r
                        WHERE r.id = h.run_id AND r.token = h.token AND r.assigned_incarnation = h.incarnation
                          AND r.state::text IN ('ASSIGNED', 'RUNNING', 'CANCEL_REQUESTED'))
     GROUP BY h.incarnation
), unresolved AS (
    SELECT i.incarnation
      FROM unnest(%(complete)s::uuid[]) AS i (incarnation)
     WHERE EXISTS (SELECT 1 FROM scheduler.unresolved_attempts u WHERE u.incarnation = i.incarnation)
        OR EXISTS (SELECT 1 FROM scheduler.runs_live r
                    WHERE r.assigned_incarnation = i.incarnation AND r.state IN ('ASSIGNED', 'RUNNING', 'CANCEL_REQUESTED')
                      AND r.token IS NOT NULL AND r.dispatched_at < now() - make_interval(secs => %(grace)s::double precision)
                      AND NOT EXISTS (
                        SELECT 1
                          FROM unnest(%(held_by)s::uuid[] || %(unanswered_by)s::uuid[], %(runs)s::bigint[] || %(unanswered_runs)s::bigint[],
                                      %(tokens)s::bigint[] || %(unanswered_tokens)s::bigint[]) AS n (incarnation, run_id, token)
                         WHERE n.run_id = r.id AND n.token = r.token AND n.incarnation = r.assigned_incarnation))
), queued AS (
    SELECT o.incarnation, jsonb_agg(to_jsonb(o) ORDER BY o.id) AS orders
      FROM (SELECT id, incarnation, kind, run_id, token, payload, epoch, serial
              FROM scheduler.executor_orders
             WHERE incarnation = ANY (%(incarnations)s::uuid[]) AND done_at IS NULL
             ORDER BY id LIMIT %(limit)s::integer) o
     GROUP BY o.incarnation
)
SELECT i.incarnation::text AS incarnation, coalesce(s.token, 0) AS smallest_live_token, coalesce(m.attempts, '[]') AS not_held,
       coalesce(q.orders, '[]') AS orders, EXISTS (SELECT 1 FROM unresolved u WHERE u.incarnation = i.incarnation) AS unresolved
  FROM unnest(%(incarnations)s::uuid[]) AS i (incarnation)
  LEFT JOIN smallest s USING (incarnation) LEFT JOIN missing m USING (incarnation) LEFT JOIN queued q USING (incarnation);

-- name: done
-- Orders that are no longer needed: answered ones, and those of executors that are off.
SELECT o.id, o.kind, o.run_id, o.token, o.result
  FROM scheduler.executor_orders o JOIN scheduler.executors e ON e.incarnation = o.incarnation
 WHERE o.done_at IS NOT NULL OR e.state = 'off'
 ORDER BY o.id LIMIT %(limit)s::integer;

-- name: forget
-- Orders whose answers have been written to their runs.
DELETE FROM scheduler.executor_orders WHERE id = ANY (%(ids)s::bigint[]);

-- name: finish
-- open -> done, with the executor's answer.
UPDATE scheduler.executor_orders o SET done_at = now(), result = t.result
  FROM unnest(%(ids)s::bigint[], %(results)s::text[]) AS t (id, result)
 WHERE o.id = t.id AND o.incarnation = %(incarnation)s::uuid AND o.done_at IS NULL;
