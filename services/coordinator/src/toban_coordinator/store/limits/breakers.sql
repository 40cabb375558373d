-- name: ended
-- How the runs of jobs ended since a time; while a breaker is half open, only of those that were sent since then. The latest runs are enough.
SELECT k.name, count(*) FILTER (WHERE h.state = 'SUCCEEDED') AS succeeded,
       count(*) FILTER (WHERE h.state IN ('FAILED', 'TIMED_OUT')) AS failed
  FROM unnest(%(names)s::text[], %(jobs)s::text[], %(since)s::timestamptz[], %(probes)s::boolean[]) AS k(name, job, since, probes)
 CROSS JOIN LATERAL (
    SELECT r.state, r.dispatched_at, r.finished_at
      FROM scheduler.runs_history r
     WHERE r.job_name = k.job AND r.finished_at > k.since
     ORDER BY r.id DESC LIMIT %(limit)s::integer) h
 WHERE NOT k.probes OR h.dispatched_at >= k.since
 GROUP BY k.name

-- name: move
-- ∅ | open | half_open | closed → open | half_open | closed, from the state that was read.
INSERT INTO scheduler.breakers AS b (name, state, by_hand, since, reason, updated_by)
VALUES (%(name)s::text, %(state)s::text, %(by_hand)s::boolean, %(since)s::timestamptz, %(reason)s::text, %(updated_by)s::text)
    ON CONFLICT (name) DO UPDATE
       SET state = EXCLUDED.state, by_hand = EXCLUDED.by_hand, since = EXCLUDED.since, reason = EXCLUDED.reason, updated_by = EXCLUDED.updated_by
     WHERE b.state = %(from_state)s::text AND b.since = %(from_since)s::timestamptz

-- name: one
-- One breaker, locked.
SELECT b.state, b.since, b.by_hand, b.reason, b.updated_by FROM scheduler.breakers b WHERE b.name = %(name)s::text FOR UPDATE

-- name: forget
-- open | half_open | closed → ∅, with the health signal.
WITH signal AS (DELETE FROM scheduler.limit_signals s WHERE s.name = %(name)s::text)
DELETE FROM scheduler.breakers b WHERE b.name = %(name)s::text

-- name: signal
-- The last health signal for a limit, locked.
SELECT s.level AS state, s.factor, s.updated_at AS since, s.holds_until, s.reason, s.updated_by
  FROM scheduler.limit_signals s WHERE s.name = %(name)s::text FOR UPDATE

-- name: signals
-- All health signals.
SELECT s.name, s.level AS state, s.factor, s.updated_at AS since, s.holds_until, s.reason, s.updated_by FROM scheduler.limit_signals s

-- name: put_signal
-- Another health signal in place of the one before.
INSERT INTO scheduler.limit_signals (name, level, factor, updated_at, holds_until, reason, updated_by)
VALUES (%(name)s::text, %(level)s::text, %(factor)s::double precision, %(since)s::timestamptz, %(holds_until)s::timestamptz, %(reason)s::text,
        %(updated_by)s::text)
    ON CONFLICT (name) DO UPDATE
       SET level = EXCLUDED.level, factor = EXCLUDED.factor, updated_at = EXCLUDED.updated_at, holds_until = EXCLUDED.holds_until,
           reason = EXCLUDED.reason, updated_by = EXCLUDED.updated_by

-- name: ignore_limits
-- These runs start whatever their limits say.
INSERT INTO scheduler.limit_overrides (run_id) SELECT unnest(%(ids)s::bigint[]) ON CONFLICT (run_id) DO NOTHING

-- name: server_time
-- PostgreSQL's time.
SELECT now() AS at
