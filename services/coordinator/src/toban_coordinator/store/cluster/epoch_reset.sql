-- name: activity
-- Everything that moves while a coordinator lives or an executor is granted, and the longest lease that may still be held, milliseconds.
SELECT l.epoch, b.beat, (SELECT max(c.last_seen_at) FROM scheduler.coordinators c) AS coordinator_seen_at,
       (SELECT coalesce(sum(e.grant_seq), 0) FROM scheduler.executors e)::bigint AS grants,
       (SELECT count(*) FROM scheduler.executors e) AS incarnations,
       (SELECT coalesce(max(e.lease_ms), 0) FROM scheduler.executors e WHERE e.state <> 'off')::integer AS lease_ms
  FROM scheduler.leader l, scheduler.leader_beat b
 WHERE l.id = 1 AND b.id = 1;

-- name: lock
-- Keeps takeovers out until the end of the transaction. The minutes since 2026 are more than any count of terms, and than at an earlier reset.
SELECT epoch, scheduler.current_timeline() AS timeline, (extract(epoch FROM now() - '2026-01-01Z'::timestamptz) / 60)::bigint AS minutes
  FROM scheduler.leader WHERE id = 1 FOR UPDATE;

-- name: used_generations
-- Generations of the tokens of runs that may be dispatched again: a pair (run, token) is never used twice.
SELECT DISTINCT a.token >> 51 AS generation FROM scheduler.job_attempts a JOIN scheduler.runs_live r ON r.id = a.run_id
 UNION SELECT DISTINCT token >> 51 FROM scheduler.runs_live WHERE token IS NOT NULL;

-- name: close_executors
-- any state -> off: no incarnation of before gets a grant or keeps a run.
UPDATE scheduler.executors SET state = 'off', off_at = now(), off_reason = 'the epochs were reset' WHERE state <> 'off';

-- name: reset
-- Another cluster for everything that was signed, an epoch from before the first term, no leader, not settled.
WITH fresh AS (
    UPDATE scheduler.leader
       SET epoch = %(epoch)s::bigint, cluster_id = gen_random_uuid(), holder = NULL, worker_id = NULL, address = '', node_id = '',
           resigned_epoch = %(epoch)s::bigint, settled_system_id = '', term_system_id = scheduler.current_system_id(),
           term_timeline = scheduler.current_timeline(), term_database = scheduler.current_database_oid()
     WHERE id = 1
 RETURNING epoch
), beats AS (
    UPDATE scheduler.leader_beat b SET epoch = fresh.epoch, beat = b.beat + 1, last_tick_at = NULL, demote_epoch = -1 FROM fresh WHERE b.id = 1
)
DELETE FROM scheduler.epoch_claims;
