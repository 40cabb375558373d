-- name: keep
-- The place in a trace that a call started runs from: an event of each.
INSERT INTO scheduler.job_events (run_id, type, metadata)
SELECT id, 'trace', jsonb_build_object('traceparent', %(traceparent)s::text) FROM unnest(%(ids)s::bigint[]) AS t (id);

-- name: kept
-- What was kept of these runs.
SELECT run_id, metadata ->> 'traceparent' AS traceparent FROM scheduler.job_events WHERE run_id = ANY (%(ids)s::bigint[]) AND type = 'trace';
