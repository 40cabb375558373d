-- SQL that several files of this folder share.

-- fragment: attempts_of_sent
-- The attempt rows of the runs that CTE `sent` has assigned to their executors under this term.
INSERT INTO scheduler.job_attempts (log_day, run_id, token, attempt, leader_epoch, incarnation, worker_id, dispatched_at)
SELECT log_day, id, token, attempt, %(fence_epoch)s::bigint, assigned_incarnation, assigned_worker_id, dispatched_at FROM sent

-- fragment: stale_definitions
-- A row for each definition of CTE `wanted` that is not the current, enabled one any more.
SELECT 1 FROM (SELECT DISTINCT definition_id, version FROM wanted) w
         LEFT JOIN scheduler.job_definitions d ON d.id = w.definition_id AND d.version = w.version AND d.enabled
 WHERE d.id IS NULL

-- fragment: run_to_decide
-- The columns of a live run that a decision about it reads.
r.id, r.state::text AS state, r.token, r.assigned_incarnation::text AS incarnation, r.attempt, r.max_attempts, r.lost_count, r.max_lost,
r.definition_id, r.definition_version, r.started_at IS NOT NULL AS started

-- fragment: waiting
-- Recursive CTE `waiting`: the first PENDING run of each priority. One entry of the index is read for each: priorities are few, runs may be many.
(SELECT r.priority, r.scheduled_for FROM scheduler.runs_live r
  WHERE r.state = 'PENDING' ORDER BY r.priority DESC, r.scheduled_for, r.id LIMIT 1)
UNION ALL
SELECT n.priority, n.scheduled_for
  FROM waiting w CROSS JOIN LATERAL (
    SELECT r.priority, r.scheduled_for FROM scheduler.runs_live r
     WHERE r.state = 'PENDING' AND r.priority < w.priority ORDER BY r.priority DESC, r.scheduled_for, r.id LIMIT 1) n

-- fragment: holders
-- Recursive CTE `holders`: the incarnations that hold live runs. One entry of the index is read for each: executors are few, runs may be many.
(SELECT r.assigned_incarnation AS incarnation FROM scheduler.runs_live r
  WHERE r.state IN ('ASSIGNED', 'RUNNING', 'CANCEL_REQUESTED', 'ORPHANED') AND r.assigned_incarnation IS NOT NULL
  ORDER BY r.assigned_incarnation LIMIT 1)
UNION ALL
SELECT n.incarnation
  FROM holders h CROSS JOIN LATERAL (
    SELECT r.assigned_incarnation AS incarnation FROM scheduler.runs_live r
     WHERE r.state IN ('ASSIGNED', 'RUNNING', 'CANCEL_REQUESTED', 'ORPHANED') AND r.assigned_incarnation > h.incarnation
     ORDER BY r.assigned_incarnation LIMIT 1) n
