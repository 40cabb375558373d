-- name: off
-- any state but off -> off, by compare-and-set on (incarnation, grant_seq): a grant that came meanwhile wins. Rows are locked in id order.
WITH still AS (
    SELECT * FROM unnest(%(incarnations)s::uuid[], %(grants)s::bigint[], %(reasons)s::text[]) AS t (incarnation, grant_seq, reason)
), locked AS (
    SELECT e.incarnation FROM scheduler.executors e JOIN still USING (incarnation) ORDER BY e.incarnation FOR NO KEY UPDATE OF e
)
UPDATE scheduler.executors e
   SET state = 'off', off_at = now(), off_reason = s.reason
  FROM still s JOIN locked USING (incarnation)
 WHERE e.incarnation = s.incarnation AND e.grant_seq = s.grant_seq AND e.state <> 'off'
RETURNING e.incarnation::text AS incarnation;

-- name: orphan
-- ASSIGNED | RUNNING -> ORPHANED, never sent ones -> PENDING; its attempts -> LOST. At most so many runs: the rest is put back by reap.
WITH held AS (
    SELECT id, state, token, log_day, steps FROM scheduler.runs_live
     WHERE assigned_incarnation = ANY (%(incarnations)s::uuid[]) AND state IN ('ASSIGNED', 'RUNNING')
     ORDER BY id LIMIT %(limit)s::integer FOR NO KEY UPDATE
), moved AS (
    UPDATE scheduler.runs_live r
       SET state = CASE WHEN h.token IS NULL THEN 'PENDING' ELSE 'ORPHANED' END::scheduler.run_state, version = r.version + 1,
           orphaned_until = CASE WHEN h.token IS NOT NULL THEN {{orphan_wait}} END,
           assigned_incarnation = CASE WHEN h.token IS NULL THEN NULL ELSE r.assigned_incarnation END,
           assigned_worker_id = CASE WHEN h.token IS NULL THEN NULL ELSE r.assigned_worker_id END,
           assigned_at = CASE WHEN h.token IS NULL THEN NULL ELSE r.assigned_at END
      FROM held h WHERE r.id = h.id
 RETURNING r.id, h.state AS from_state, r.state AS to_state, r.assigned_incarnation
), lost AS (
    UPDATE scheduler.job_attempts a SET state = 'LOST', finished_at = now(), reason = 'executor_fenced', steps = h.steps
      FROM held h
     WHERE a.run_id = h.id AND a.token = h.token AND a.log_day = h.log_day AND a.state IN ('DISPATCHED', 'RUNNING')
 RETURNING a.run_id
), noted AS (
    INSERT INTO scheduler.job_events (run_id, type, from_state, to_state, message, actor)
    SELECT m.id, 'executor_fenced', m.from_state::text, m.to_state::text, 'its executor was fenced: ' || coalesce(e.off_reason, ''), 'leader'
      FROM moved m LEFT JOIN scheduler.executors e ON e.incarnation = m.assigned_incarnation
)
SELECT count(*) AS moved FROM moved;
