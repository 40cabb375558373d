-- fragment: facts
-- What triggers and webhooks may know of a run `r`, and the labels of its job `d` now.
r.id, r.job_name, r.state::text AS state, r.reason, r.scope, r.scope_id, r.chain_depth, coalesce(d.spec -> 'labels', '{}') AS labels,
       r.definition_version, r.schedule_name, r.origin, r.slot, r.scheduled_for, r.started_at, r.finished_at, r.attempt, r.exit_code,
       r.term_signal, r.error_summary, r.last_line, r.trigger_name, r.after_run, r.rerun_of, r.result, r.payload

-- name: ended
-- Finished runs.
SELECT {{facts}}
  FROM unnest(%(ids)s::bigint[]) AS i(id)
 CROSS JOIN LATERAL (SELECT h.* FROM scheduler.runs_history h WHERE h.id = i.id LIMIT 1) r
  LEFT JOIN scheduler.job_definitions d ON d.id = r.definition_id

-- name: known
-- The same of runs that may be live.
SELECT {{facts}}
  FROM unnest(%(ids)s::bigint[]) AS i(id)
 CROSS JOIN LATERAL (SELECT h.* FROM scheduler.job_runs h WHERE h.id = i.id LIMIT 1) r
  LEFT JOIN scheduler.job_definitions d ON d.id = r.definition_id

-- name: note_failed
-- Among the events of runs: which triggers could not start their jobs at its end.
INSERT INTO scheduler.job_events (run_id, type, message, actor)
SELECT i.run_id, 'trigger_failed', i.message, 'trigger'
  FROM jsonb_to_recordset(%(failures)s::jsonb) AS i(run_id bigint, message text)
