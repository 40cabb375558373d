-- name: queue
-- An order that could not be delivered: it goes out with the answer to a heartbeat. One open order a (incarnation, kind, run, token).
INSERT INTO scheduler.executor_orders (incarnation, kind, run_id, token, payload, epoch, serial)
SELECT %(incarnation)s::uuid, %(kind)s::text, t.run_id, t.token, t.payload, %(epoch)s::bigint, %(serial)s::bigint
  FROM unnest(%(runs)s::bigint[], %(tokens)s::bigint[], %(payloads)s::jsonb[]) AS t (run_id, token, payload)
    ON CONFLICT (incarnation, kind, run_id, token) WHERE done_at IS NULL AND run_id IS NOT NULL DO NOTHING;

-- name: open
-- Open orders of these incarnations, oldest first.
SELECT id, incarnation::text AS incarnation, kind, run_id, token, payload, epoch, serial
  FROM scheduler.executor_orders
 WHERE incarnation = ANY (%(incarnations)s::uuid[]) AND done_at IS NULL
 ORDER BY id LIMIT %(limit)s::integer;

-- name: done
-- Orders that need nobody any more: answered ones, and those of executors that are off.
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
