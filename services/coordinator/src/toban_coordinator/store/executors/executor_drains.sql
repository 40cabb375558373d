-- name: subject
-- The executor that an operator named, with the drain that is kept for its instance.
SELECT e.incarnation::text AS incarnation, e.worker_id, e.instance, e.node_id, e.state, e.detach_mode, d.instance IS NOT NULL AS drained,
       coalesce(d.reason, '') AS drain_reason
  FROM scheduler.executors e LEFT JOIN scheduler.executor_drains d ON d.instance = e.instance
 WHERE e.worker_id = %(worker_id)s::bigint

-- name: keep_drain
-- A drain is kept for the instance; one that was kept already gets the new reason.
INSERT INTO scheduler.executor_drains (instance, reason, actor) VALUES (%(instance)s::text, %(reason)s::text, %(actor)s::text)
ON CONFLICT (instance) DO UPDATE SET reason = excluded.reason, actor = excluded.actor
RETURNING xmax = 0 AS made

-- name: start_draining
-- on -> draining; rows are locked in id order. Also rows that are not `on` are waited for and written: a transaction that has locked one of them, and did
-- not see this drain, may be about to put it `on`.
WITH locked AS (
    SELECT incarnation FROM scheduler.executors
     WHERE instance = %(instance)s::text AND state IN ('on', 'draining', 'detached') ORDER BY incarnation FOR NO KEY UPDATE
)
UPDATE scheduler.executors e SET state = CASE e.state WHEN 'on' THEN 'draining' ELSE e.state END
  FROM locked WHERE e.incarnation = locked.incarnation AND e.state IN ('on', 'draining', 'detached')

-- name: forget_drain
-- The drain of an instance ends; draining -> on comes with the next heartbeat, which also knows whether the executor is stopping.
DELETE FROM scheduler.executor_drains WHERE instance = %(instance)s::text

-- name: detach
-- on | draining | detached for silence -> detached by an operator; one whose runs may finish can be told to stop.
UPDATE scheduler.executors SET state = 'detached', detach_mode = %(mode)s::text, detached_at = now()
 WHERE incarnation = %(incarnation)s::uuid
   AND (state IN ('on', 'draining') OR (state = 'detached' AND (detach_mode = '' OR detach_mode = 'let_finish' AND %(mode)s::text = 'stop')))
