-- name: confirm
-- Questions about continuation, after `executors.lock`: one grant for each incarnation that holds at least one of the attempts it names without a
-- cancel, and CONFIRMING for those. A fence took the row before, or its compare-and-set fails now. What is held comes back, and which of it is
-- canceled; of the same answer a run gets one event a minute.
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest(%(incarnations)s::uuid[], %(echoes)s::bigint[], %(nonces)s::bigint[]) AS a (incarnation, echo, nonce)
), named AS MATERIALIZED (
    SELECT DISTINCT * FROM unnest(%(holders)s::uuid[], %(runs)s::bigint[], %(tokens)s::bigint[]) AS n (incarnation, run_id, token)
), held AS MATERIALIZED (
    SELECT r.id AS run_id, r.token, r.assigned_incarnation AS incarnation, r.state = 'CANCEL_REQUESTED' AS canceled
      FROM scheduler.runs_live r JOIN named n ON n.run_id = r.id AND n.token = r.token AND n.incarnation = r.assigned_incarnation
     WHERE r.state IN ('ASSIGNED', 'RUNNING', 'CANCEL_REQUESTED')
     ORDER BY r.id FOR NO KEY UPDATE OF r
), granted AS (
    UPDATE scheduler.executors e SET grant_seq = e.grant_seq + 1, granted_at = now(), echo_seq = {{echoed}}, nonce = a.nonce, nonces = {{next_nonces}}
      FROM asked a
     WHERE e.incarnation = a.incarnation AND {{may_grant}} AND e.detach_mode <> 'stop'
       AND EXISTS (SELECT 1 FROM held h WHERE h.incarnation = e.incarnation AND NOT h.canceled)
    RETURNING e.incarnation, e.grant_seq, e.nonces[1] AS nonce
), confirmed AS (
    UPDATE scheduler.runs_live r
       SET continuation_state = 'CONFIRMING', continuation_check_started_at = now(),
           continuation_check_deadline_at = now() + make_interval(secs => %(seconds)s::double precision)
      FROM held h JOIN granted g USING (incarnation)
     WHERE r.id = h.run_id AND NOT h.canceled
    RETURNING r.id
), answered AS (
    SELECT id AS run_id, 'continuation_confirmed' AS type, 'its executor asked, and its lease was renewed' AS message FROM confirmed
     UNION ALL
    SELECT h.run_id, 'continuation_refused', CASE WHEN h.canceled THEN 'a cancel was requested' ELSE 'an operator detached its executor (stop)' END
      FROM held h JOIN scheduler.executors e USING (incarnation)
     WHERE h.canceled OR e.detach_mode = 'stop'
     UNION ALL
    SELECT n.run_id, 'continuation_refused', 'executor ' || x.worker_id || ' asked for an attempt that it does not hold any more'
      FROM named n JOIN scheduler.job_attempts x USING (run_id, token, incarnation) JOIN scheduler.executors e USING (incarnation)
     WHERE e.state <> 'off' AND NOT EXISTS (SELECT 1 FROM held h WHERE h.run_id = n.run_id AND h.token = n.token)
), noted AS (
    INSERT INTO scheduler.job_events (run_id, type, message)
    SELECT a.run_id, a.type, a.message FROM answered a
     WHERE NOT EXISTS (SELECT 1 FROM scheduler.job_events v
                        WHERE v.run_id = a.run_id AND v.type = a.type AND v.at > now() - interval '1 minute')
)
SELECT e.incarnation::text AS incarnation, e.state, e.detach_mode, g.incarnation IS NOT NULL AS granted,
       coalesce(g.grant_seq, e.grant_seq) AS grant_seq, coalesce(g.nonce, 0) AS nonce,
       a.nonce = e.nonce OR a.nonce = ANY (e.nonces) AS nonce_known, {{signed_with_grant}},
       coalesce((SELECT jsonb_agg(jsonb_build_array(h.run_id, h.token, h.canceled)) FROM held h WHERE h.incarnation = e.incarnation), '[]') AS held
  FROM scheduler.executors e JOIN asked a USING (incarnation) LEFT JOIN granted g USING (incarnation);
