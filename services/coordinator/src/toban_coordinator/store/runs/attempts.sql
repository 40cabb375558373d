-- name: lookup
-- What PostgreSQL knows of attempts whose runs are not live under that token any more.
SELECT a.run_id, a.token, a.state, a.incarnation::text AS incarnation, a.worker, a.outcome
  FROM unnest(%(ids)s::bigint[], %(tokens)s::bigint[]) AS i(run_id, token)
  JOIN scheduler.job_attempts a ON a.run_id = i.run_id AND a.token = i.token

-- name: orphan_lookup
-- Orphan results that are already kept.
SELECT o.run_id, o.token, o.outcome
  FROM unnest(%(ids)s::bigint[], %(tokens)s::bigint[]) AS i(run_id, token)
  JOIN scheduler.orphan_results o ON o.run_id = i.run_id AND o.token = i.token

-- name: close
-- DISPATCHED | RUNNING → the end of one dispatch whose run goes on.
UPDATE scheduler.job_attempts a
   SET state = i.state, reason = i.reason, error_summary = i.error, outcome = COALESCE(i.outcome::jsonb, a.outcome),
       started_at = CASE WHEN i.started_at IS NULL THEN a.started_at ELSE LEAST(now(), GREATEST(i.started_at, a.dispatched_at)) END,
       finished_at = CASE WHEN i.finished_at IS NULL THEN now() ELSE LEAST(now(), GREATEST(i.finished_at, a.dispatched_at)) END, exit_code = i.exit_code, term_signal = i.signal,
       last_seq = COALESCE(i.last_seq, a.last_seq),
       steps = CASE WHEN i.outcome::jsonb ? 'steps' THEN NULL
                    ELSE COALESCE(a.steps, (SELECT r.steps FROM scheduler.runs_live r WHERE r.id = i.run_id AND r.token = i.token)) END
  FROM unnest(%(ids)s::bigint[], %(tokens)s::bigint[], %(states)s::text[], %(reasons)s::text[], %(errors)s::text[], %(outcomes)s::text[],
              %(started)s::timestamptz[], %(finished)s::timestamptz[], %(exit_codes)s::integer[], %(signals)s::integer[], %(last_seqs)s::bigint[])
       AS i(run_id, token, state, reason, error, outcome, started_at, finished_at, exit_code, signal, last_seq)
 WHERE a.run_id = i.run_id AND a.token = i.token AND a.outcome IS NULL

-- name: keep_orphans
-- Results of tokens that are not accepted any more: kept and shown, never applied.
INSERT INTO scheduler.orphan_results (run_id, token, outcome, incarnation)
SELECT i.run_id, i.token, i.outcome::jsonb, %(incarnation)s::uuid
  FROM unnest(%(ids)s::bigint[], %(tokens)s::bigint[], %(outcomes)s::text[]) AS i(run_id, token, outcome)
    ON CONFLICT (run_id, token) DO NOTHING

-- name: ended
-- Of some attempts of a day those that told their last line, whose executor is gone, or that are forgotten here; last_seq NULL: never told.
SELECT k.run_id, k.token, a.last_seq
  FROM unnest(%(run_ids)s::bigint[], %(tokens)s::bigint[]) AS k (run_id, token)
  LEFT JOIN scheduler.job_attempts a ON a.log_day = %(log_day)s::date AND a.run_id = k.run_id AND a.token = k.token
  LEFT JOIN scheduler.executors e ON e.incarnation = a.incarnation
 WHERE CASE WHEN a.run_id IS NULL
            THEN NOT EXISTS (SELECT 1 FROM scheduler.runs_live r WHERE r.id = k.run_id AND r.token = k.token)
            ELSE a.state NOT IN ('DISPATCHED', 'RUNNING')
                 AND (a.last_seq IS NOT NULL OR e.incarnation IS NULL
                      OR e.off_at < now() - make_interval(secs => %(off_seconds)s::double precision))
       END
 ORDER BY k.run_id, k.token
