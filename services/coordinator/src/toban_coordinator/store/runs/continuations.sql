-- name: look
-- Of each incarnation whether its row gives a grant for what it presents. Rows are locked in id order: a fence took the row before, or its
-- compare-and-set fails now.
SELECT e.incarnation::text AS incarnation, e.state, e.detach_mode, e.grant_seq, a.nonce = e.nonce OR a.nonce = ANY (e.nonces) AS nonce_known,
       {{may_grant}} AND e.detach_mode <> 'stop' AS may
  FROM scheduler.executors e
  JOIN unnest(%(incarnations)s::uuid[], %(echoes)s::bigint[], %(nonces)s::bigint[]) AS a (incarnation, echo, nonce) USING (incarnation)
 ORDER BY e.incarnation FOR NO KEY UPDATE OF e;

-- name: held
-- Which of the named attempts their incarnations hold, locked by id, each with whether a cancel is requested.
SELECT r.id AS run_id, r.token, r.assigned_incarnation::text AS incarnation, r.state = 'CANCEL_REQUESTED' AS canceled
  FROM scheduler.runs_live r
  JOIN unnest(%(holders)s::uuid[], %(runs)s::bigint[], %(tokens)s::bigint[]) AS n (incarnation, run_id, token)
       ON n.run_id = r.id AND n.token = r.token AND n.incarnation = r.assigned_incarnation
 WHERE r.state IN ('ASSIGNED', 'RUNNING', 'CANCEL_REQUESTED')
 ORDER BY r.id FOR NO KEY UPDATE OF r;

-- name: grant
-- One grant for each of these, after `look` has locked them.
UPDATE scheduler.executors e SET grant_seq = e.grant_seq + 1, granted_at = now(), echo_seq = {{echoed}}, nonce = a.nonce, nonces = {{next_nonces}}
  FROM unnest(%(incarnations)s::uuid[], %(echoes)s::bigint[], %(nonces)s::bigint[]) AS a (incarnation, echo, nonce)
 WHERE e.incarnation = a.incarnation
RETURNING e.incarnation::text AS incarnation, e.grant_seq, e.nonces[1] AS nonce, {{signed_with_grant}};

-- name: confirm
-- CONFIRMING for these runs, after `held` has locked them.
UPDATE scheduler.runs_live r
   SET continuation_state = 'CONFIRMING', continuation_check_started_at = now(),
       continuation_check_deadline_at = now() + make_interval(secs => %(seconds)s::double precision)
 WHERE r.id = ANY (%(runs)s::bigint[]);

-- name: note
-- The answers as events of the runs; of the same answer a run gets one a minute.
INSERT INTO scheduler.job_events (run_id, type, message)
SELECT a.run_id, a.type, a.message FROM unnest(%(runs)s::bigint[], %(types)s::text[], %(messages)s::text[]) AS a (run_id, type, message)
 WHERE NOT EXISTS (SELECT 1 FROM scheduler.job_events v
                    WHERE v.run_id = a.run_id AND v.type = a.type AND v.at > now() - interval '1 minute');

-- name: note_lost
-- As `note`, for attempts that their executors held once; of others they write nothing.
INSERT INTO scheduler.job_events (run_id, type, message)
SELECT n.run_id, 'continuation_refused', 'executor ' || x.worker_id || ' asked for an attempt that it does not hold any more'
  FROM unnest(%(holders)s::uuid[], %(runs)s::bigint[], %(tokens)s::bigint[]) AS n (incarnation, run_id, token)
  JOIN scheduler.job_attempts x USING (run_id, token, incarnation)
 WHERE NOT EXISTS (SELECT 1 FROM scheduler.job_events v
                    WHERE v.run_id = n.run_id AND v.type = 'continuation_refused' AND v.at > now() - interval '1 minute');
