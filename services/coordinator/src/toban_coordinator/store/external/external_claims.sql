-- name: offer
-- PENDING → WAITING_WORKER, with the token of the claim that comes; wakes the claims that wait.
WITH input AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::bigint[], %(tokens)s::bigint[], %(types)s::text[], %(next_steps)s::integer[], %(phases)s::text[])
                  AS i(id, token, worker_type, next_step, phase)
), locked AS MATERIALIZED (
    {{lock_runs}}
), moved AS (
    UPDATE scheduler.runs_live r
       SET state = 'WAITING_WORKER', token = i.token, log_day = (now() AT TIME ZONE 'UTC')::date, leader_epoch = %(epoch)s::bigint,
           assigned_at = COALESCE(r.assigned_at, now()), dispatched_at = now(), not_before = NULL, deferred_on = NULL, deferred_weight = NULL,
           resumed_at = NULL, worker_type = i.worker_type, next_step = i.next_step, kept_token = NULL,
           phase = COALESCE(NULLIF(i.phase, ''), r.phase), version = r.version + 1
      FROM input i JOIN locked l ON l.id = i.id
     WHERE r.id = ANY(%(ids)s::bigint[]) AND r.id = i.id AND r.state::text = 'PENDING'
    RETURNING r.id, r.token, r.worker_type
), event AS (
    INSERT INTO scheduler.job_events (run_id, type, from_state, to_state, message, metadata)
    SELECT id, 'offered', 'PENDING', 'WAITING_WORKER', 'to workers of type ' || worker_type, jsonb_build_object('token', token::text) FROM moved
)
SELECT id, (SELECT pg_notify('toban_wake', 'claims'))::text AS woken FROM moved

-- name: offered
-- Offers to workers of one type, the most urgent rank first, and within it scopes in turn. None in a cluster that is not settled: claims may have
-- been lost there (docs/fencing.md 3.2).
WITH RECURSIVE queue AS NOT MATERIALIZED (
    SELECT r.priority * 2 - r.catch_up::integer AS rank, r.*
      FROM scheduler.runs_live r
     WHERE r.state = 'WAITING_WORKER' AND r.locked_by IS NULL AND r.worker_type = %(type)s::text
       AND (SELECT scheduler.is_settled(l) FROM scheduler.leader l)
), scopes AS (
    {{fair_scopes}}
), listed AS MATERIALIZED (
    SELECT q.rank, q.scope, q.scope_id, row_number() OVER () AS turn
      FROM (SELECT * FROM scopes LIMIT %(limit)s::integer) q
)
SELECT x.id, x.token, x.rank, x.scope, x.scope_id, x.definition_id, x.definition_version, x.attempt, COALESCE(x.first_step, 0) AS step,
       x.scheduled_for, x.payload::text AS payload, x.result::text AS result
  FROM listed l
 CROSS JOIN LATERAL (
    SELECT r.* FROM queue r
     WHERE r.rank = l.rank AND r.scope = l.scope AND r.scope_id = l.scope_id
     ORDER BY r.scheduled_for, r.id LIMIT %(limit)s::integer) x
 ORDER BY l.turn, x.scheduled_for, x.id
 LIMIT CASE WHEN (SELECT count(*) FROM listed) > 1 THEN 4 ELSE 1 END * %(limit)s::integer

-- name: claim
-- WAITING_WORKER, offered → claimed: its lock, the row of the attempt and the event. One that another claim takes meanwhile is left out.
WITH input AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::bigint[], %(tokens)s::bigint[], %(workers)s::text[], %(ttls)s::integer[], %(timeouts)s::integer[],
                         %(steps)s::integer[])
                  AS i(id, token, worker, ttl, timeout, step)
), locked AS MATERIALIZED (
    SELECT r.id
      FROM scheduler.runs_live r
     WHERE r.id = ANY(%(ids)s::bigint[]) AND r.state::text = 'WAITING_WORKER' AND r.locked_by IS NULL
     ORDER BY r.id
       FOR UPDATE SKIP LOCKED
), moved AS (
    UPDATE scheduler.runs_live r
       SET locked_by = i.worker, locked_until = now() + make_interval(secs => i.ttl / 1000.0), lock_ttl_ms = i.ttl, lock_seq = r.lock_seq + 1,
           claimed_at = now(), claim_deadline = CASE WHEN i.timeout > 0 THEN now() + make_interval(secs => i.timeout) END,
           started_at = COALESCE(r.started_at, now()), version = r.version + 1,
           steps = jsonb_build_array(jsonb_build_object(
               'index', i.step, 'started_at', now(), 'finished_at', NULL, 'exit_code', NULL, 'signal', NULL, 'seq_from', 0, 'seq_to', 0))
      FROM input i JOIN locked l ON l.id = i.id
     WHERE r.id = ANY(%(ids)s::bigint[]) AND r.id = i.id AND r.token = i.token AND r.state::text = 'WAITING_WORKER' AND r.locked_by IS NULL
    RETURNING r.id, r.token, r.attempt, r.leader_epoch, r.log_day, r.dispatched_at, r.locked_by
), attempt AS (
    INSERT INTO scheduler.job_attempts (log_day, run_id, token, attempt, leader_epoch, state, dispatched_at, started_at, worker)
    SELECT log_day, id, token, attempt, leader_epoch, 'RUNNING', dispatched_at, now(), locked_by FROM moved
), event AS (
    INSERT INTO scheduler.job_events (run_id, type, from_state, to_state, message)
    SELECT id, 'claimed', 'WAITING_WORKER', 'WAITING_WORKER', 'by worker ' || locked_by FROM moved
)
SELECT id FROM moved

-- name: extend
-- A claim, extended: its worker has sent a heartbeat. Not past the timeout of its step, and not for long once it is canceled.
WITH input AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::bigint[], %(tokens)s::bigint[], %(workers)s::text[]) AS i(id, token, worker)
), locked AS MATERIALIZED (
    SELECT r.id, r.token, r.locked_by,
           (r.claim_deadline IS NULL OR r.claim_deadline > now())
           AND (r.state <> 'CANCEL_REQUESTED' OR r.cancel_until IS NULL OR r.cancel_until > now()) AS extended,
           r.state = 'CANCEL_REQUESTED' AND r.cancel_until IS NOT NULL AS canceled
      FROM scheduler.runs_live r
     WHERE r.id = ANY(%(ids)s::bigint[]) AND r.state::text IN ('WAITING_WORKER', 'CANCEL_REQUESTED') AND r.locked_by IS NOT NULL
     ORDER BY r.id
       FOR NO KEY UPDATE
), held AS MATERIALIZED (
    SELECT i.id, i.token, i.worker, l.extended, l.canceled
      FROM input i JOIN locked l ON l.id = i.id AND l.token = i.token AND l.locked_by = i.worker
), moved AS (
    UPDATE scheduler.runs_live r
       SET locked_until = now() + make_interval(secs => r.lock_ttl_ms / 1000.0), lock_seq = r.lock_seq + 1
      FROM held h
     WHERE r.id = ANY(%(ids)s::bigint[]) AND r.id = h.id AND h.extended
)
SELECT h.id, h.token, h.worker, h.extended, h.canceled FROM held h

-- name: progress
-- What a worker says of how far it is: onto its claimed run.
UPDATE scheduler.runs_live r
   SET progress = jsonb_build_object(
           'percentage', COALESCE(to_jsonb(%(percentage)s::integer), r.progress -> 'percentage', to_jsonb(0)), 'summary', %(summary)s::text, 'at', now()),
       version = r.version + 1
 WHERE r.id = %(id)s::bigint AND r.token = %(token)s::bigint AND r.locked_by = %(worker)s::text
   AND r.state IN ('WAITING_WORKER', 'CANCEL_REQUESTED')
RETURNING r.state = 'CANCEL_REQUESTED' AND r.cancel_until IS NOT NULL AS canceled

-- name: log_of
-- What new lines of a claim depend on. `step` has the number of the last line and what the lines have used of the limits.
SELECT r.definition_id, r.definition_version, r.payload::text AS payload, r.log_day, r.steps -> 0 AS step,
       extract(epoch FROM now())::double precision AS now, r.state = 'CANCEL_REQUESTED' AND r.cancel_until IS NOT NULL AS canceled
  FROM scheduler.runs_live r
 WHERE r.id = %(id)s::bigint AND r.token = %(token)s::bigint AND r.locked_by = %(worker)s::text
   AND r.state IN ('WAITING_WORKER', 'CANCEL_REQUESTED')

-- name: note_log
-- The lines of a claim, onto its run, unless another call has done so meanwhile.
UPDATE scheduler.runs_live r
   SET steps = jsonb_set(r.steps, '{0}', (r.steps -> 0) || jsonb_build_object('seq_from', 1, 'seq_to', %(last_seq)s::bigint, 'log_used', %(used)s::jsonb)),
       version = r.version + 1
 WHERE r.id = %(id)s::bigint AND r.token = %(token)s::bigint AND r.locked_by = %(worker)s::text
   AND r.state IN ('WAITING_WORKER', 'CANCEL_REQUESTED') AND (r.steps #>> '{0,seq_to}')::bigint = %(before)s::bigint

-- name: held
-- What the end of claims must know of their runs.
SELECT r.id, r.token, r.locked_by AS worker, r.definition_id, r.definition_version, COALESCE(r.first_step, 0) AS step, r.next_step, r.claimed_at,
       r.log_day, COALESCE((r.steps #>> '{0,seq_to}')::bigint, 0) AS last_seq
  FROM scheduler.runs_live r
 WHERE r.id = ANY(%(ids)s::bigint[]) AND r.locked_by IS NOT NULL

-- name: claims
-- Every claim, with the cluster that this statement ran on.
SELECT scheduler.current_system_id() || '/' || scheduler.current_timeline() AS cluster, r.id AS run_id, r.token, r.lock_seq, r.lock_ttl_ms,
       (extract(epoch FROM r.claim_deadline - r.claimed_at) * 1000)::bigint AS timeout_ms, r.worker_type
  FROM scheduler.runs_live r
 WHERE r.locked_by IS NOT NULL

-- name: lock_still
-- Locks those of some claims that were not extended since they were seen, by (run, token, counter).
SELECT {{run_to_decide}}, r.claim_deadline IS NOT NULL AND r.claim_deadline <= now() AS timed_out, r.claimed_at,
       COALESCE((r.steps #>> '{0,seq_to}')::bigint, 0) AS last_seq
  FROM unnest(%(ids)s::bigint[], %(tokens)s::bigint[], %(seqs)s::bigint[]) AS i(id, token, seq)
  JOIN scheduler.runs_live r ON r.id = i.id AND r.token = i.token AND r.lock_seq = i.seq
 WHERE r.locked_by IS NOT NULL
 ORDER BY r.id
   FOR UPDATE OF r

-- name: note_cancel_timeouts
-- The claims of canceled runs ended without AcknowledgeCancel.
INSERT INTO scheduler.job_events (run_id, type, from_state, to_state, message)
SELECT i.id, 'cancel_timeout', 'CANCEL_REQUESTED', 'CANCEL_REQUESTED', 'the worker did not acknowledge the cancel before its lock ended'
  FROM unnest(%(ids)s::bigint[]) AS i(id)

-- name: unclaimed
-- Offers of runs that have never started, by definition: for late runs and max_wait.
SELECT r.definition_id, r.definition_version AS version, count(*) AS runs, min(r.scheduled_for) AS oldest
  FROM scheduler.runs_live r
 WHERE r.state = 'WAITING_WORKER' AND r.locked_by IS NULL AND r.started_at IS NULL
 GROUP BY r.definition_id, r.definition_version

-- name: unclaimed_since
-- Those of one definition whose time was before a moment.
SELECT r.id, r.token
  FROM scheduler.runs_live r
 WHERE r.state = 'WAITING_WORKER' AND r.locked_by IS NULL AND r.started_at IS NULL AND r.definition_id = %(definition_id)s::bigint
   AND r.definition_version = %(version)s::bigint AND r.scheduled_for < %(before)s::timestamptz
 ORDER BY r.id
 LIMIT %(limit)s::integer

-- name: lock_unclaimed
-- Locks those of some runs that are offered and not claimed.
SELECT {{run_to_decide}}
  FROM scheduler.runs_live r
 WHERE r.id = ANY(%(ids)s::bigint[]) AND r.state::text = 'WAITING_WORKER' AND r.locked_by IS NULL
 ORDER BY r.id
   FOR UPDATE

-- name: of_other_types
-- Runs whose offer or claim with a token is for workers of another type.
SELECT r.id
  FROM unnest(%(ids)s::bigint[], %(tokens)s::bigint[]) AS i(id, token)
  JOIN scheduler.runs_live r ON r.id = i.id AND r.token = i.token
 WHERE r.worker_type IS DISTINCT FROM %(only)s::text
 ORDER BY r.id

-- name: of_run
-- The offer or claim of a live run.
SELECT r.worker_type, r.locked_by AS worker, r.claimed_at, r.locked_until, r.dispatched_at AS offered_at, r.cancel_until, r.state::text AS state,
       now() AS server_time
  FROM scheduler.runs_live r
 WHERE r.id = %(id)s::bigint AND (r.state = 'WAITING_WORKER' OR (r.state = 'CANCEL_REQUESTED' AND r.locked_by IS NOT NULL))

-- name: counts
-- Offers and claims by the type of their workers, and for how long the first offer waits.
SELECT r.worker_type, count(*) FILTER (WHERE r.locked_by IS NULL) AS offered, count(r.locked_by) AS claimed,
       GREATEST(0, COALESCE(extract(epoch FROM now() - min(r.dispatched_at) FILTER (WHERE r.locked_by IS NULL)), 0))::double precision AS oldest
  FROM scheduler.runs_live r
 WHERE r.worker_type IS NOT NULL AND (r.state = 'WAITING_WORKER' OR r.locked_by IS NOT NULL)
 GROUP BY r.worker_type
 ORDER BY count(*) DESC, r.worker_type
