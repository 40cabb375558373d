-- Attempts that write no line any more, as the archive of logs asks.

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
