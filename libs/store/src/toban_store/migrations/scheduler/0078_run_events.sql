-- migrate:up
-- The events of runs. job_events has no row for what every run has: its creation, each dispatch, and an end without a message. The view derives
-- these from the rows of the run and its attempts. Older runs, and those of a coordinator of the release before, have such rows: these take
-- precedence, so each event appears once.
-- `rank` orders events of one instant.
SET LOCAL lock_timeout = '10s';
CREATE VIEW scheduler.run_events AS
    SELECT v.at, v.run_id, v.type, v.from_state, v.to_state, v.message, v.actor, v.metadata, 1 AS rank
      FROM scheduler.job_events v
    UNION ALL
    SELECT r.created_at, r.id, 'created', '', 'PENDING',
           CASE r.origin WHEN 'event' THEN 'by ' || COALESCE('the end of run ' || r.after_run, 'event ' || r.event_id) || ' and trigger ' || r.trigger_name
                         WHEN 'rerun' THEN 'repeats run ' || r.rerun_of
                         ELSE '' END,
           r.created_by, '{}'::jsonb, 0
      FROM (SELECT id, created_at, created_by, origin, after_run, event_id, trigger_name, rerun_of FROM scheduler.runs_live
            UNION ALL
            SELECT id, created_at, created_by, origin, after_run, event_id, trigger_name, rerun_of FROM scheduler.runs_history) r
     WHERE NOT EXISTS (SELECT 1 FROM scheduler.job_events v WHERE v.run_id = r.id AND v.type = 'created')
    UNION ALL
    SELECT a.dispatched_at, a.run_id, 'dispatched',
           COALESCE((SELECT v.to_state FROM scheduler.job_events v
                      WHERE v.run_id = a.run_id AND v.at <= a.dispatched_at AND v.to_state IN ('PENDING', 'ASSIGNED')
                      ORDER BY v.at DESC LIMIT 1), 'PENDING'),
           'ASSIGNED', '', '', jsonb_build_object('worker_id', a.worker_id, 'token', a.token::text), 2
      FROM scheduler.job_attempts a
     WHERE a.incarnation IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM scheduler.job_events v
                        WHERE v.run_id = a.run_id AND v.type = 'dispatched' AND v.metadata ->> 'token' = a.token::text)
    UNION ALL
    SELECT GREATEST(h.finished_at, b.at), h.id, lower(h.state::text), CASE WHEN b.to_state = 'RUNNING' THEN 'RUNNING' ELSE 'ASSIGNED' END,
           h.state::text, '', '', '{}'::jsonb, 3
      FROM scheduler.runs_history h
      -- The last change of its state that is stored: a start is stored with the time of its commit, which may be after the process has ended.
      LEFT JOIN LATERAL (SELECT v.at, v.to_state FROM scheduler.job_events v
                          WHERE v.run_id = h.id AND v.to_state <> '' ORDER BY v.at DESC LIMIT 1) b ON true
     WHERE b.to_state IS DISTINCT FROM h.state::text;

-- migrate:down
DROP VIEW scheduler.run_events;
