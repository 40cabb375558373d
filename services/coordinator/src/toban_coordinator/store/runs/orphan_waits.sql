-- name: end_of
-- These ORPHANED runs wait no more: their executor has reported that nothing of the attempt runs.
UPDATE scheduler.runs_live r SET orphaned_until = NULL, version = r.version + 1
  FROM unnest(%(ids)s::bigint[], %(tokens)s::bigint[]) AS i (id, token)
 WHERE r.id = i.id AND r.token = i.token AND r.state::text = 'ORPHANED' AND r.orphaned_until IS NOT NULL;

-- name: end_of_dead
-- ORPHANED runs of earlier incarnations of the same instance on the same node wait no more: the machine has booted since, or the successor that
-- holds the state directory has reaped their guards.
UPDATE scheduler.runs_live r SET orphaned_until = NULL, version = r.version + 1
  FROM scheduler.executors e
 WHERE e.instance = %(instance)s::text AND e.node_id = %(node_id)s::text AND e.incarnation <> %(incarnation)s::uuid
   AND e.incarnation = ANY (%(proven)s::uuid[]) AND {{ended_before}} AND {{pods_ended}}
   AND r.assigned_incarnation = e.incarnation AND r.state = 'ORPHANED' AND r.orphaned_until IS NOT NULL;

-- name: end_of_own
-- ORPHANED runs of an incarnation wait no more: nothing of it runs any more. A copy of it proves nothing.
UPDATE scheduler.runs_live r SET orphaned_until = NULL, version = r.version + 1
  FROM scheduler.executors e
 WHERE e.incarnation = %(incarnation)s::uuid AND (e.nonce = %(nonce)s::bigint OR %(nonce)s::bigint = ANY (e.nonces))
   AND r.assigned_incarnation = e.incarnation AND r.state = 'ORPHANED' AND r.orphaned_until IS NOT NULL;

-- name: declare_lost
-- An operator decides that an ORPHANED run waits no more, with its event.
WITH moved AS (
    UPDATE scheduler.runs_live r SET orphaned_until = NULL, version = r.version + 1
     WHERE r.id = %(id)s::bigint AND r.state = 'ORPHANED' AND r.orphaned_until IS NOT NULL
    RETURNING r.id
)
INSERT INTO scheduler.job_events (run_id, type, message, actor)
SELECT id, 'declared_lost', %(message)s::text, %(actor)s::text FROM moved
RETURNING run_id;

-- name: until
-- Until when an ORPHANED run waits, with the executor that it was on.
SELECT r.orphaned_until, r.assigned_worker_id AS worker_id, e.node_id, e.off_at
  FROM scheduler.runs_live r LEFT JOIN scheduler.executors e ON e.incarnation = r.assigned_incarnation
 WHERE r.id = %(id)s::bigint AND r.state = 'ORPHANED' AND r.orphaned_until IS NOT NULL;

-- name: given_up
-- Of attempts that incarnations which are off still hold, those whose run has gone on, is being canceled or has ended.
SELECT h.incarnation::text AS incarnation, h.run_id, h.token
  FROM unnest(%(holders)s::uuid[], %(runs)s::bigint[], %(tokens)s::bigint[]) AS h (incarnation, run_id, token)
  JOIN scheduler.executors e ON e.incarnation = h.incarnation AND e.state = 'off'
 WHERE NOT EXISTS (SELECT 1 FROM scheduler.runs_live r
                    WHERE r.id = h.run_id AND r.token = h.token AND r.assigned_incarnation = h.incarnation
                      AND r.state::text IN ('ASSIGNED', 'RUNNING', 'ORPHANED'));
