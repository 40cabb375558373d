-- name: source
-- What a run was made from, live or finished.
SELECT r.id, r.job_name AS job, r.definition_id, r.definition_version, r.state::text AS state, r.payload::text AS payload, r.priority, r.scope,
       r.scope_id, {{run_redact}} AS redact
  FROM scheduler.job_runs r
 WHERE r.id = %(id)s::bigint
 LIMIT 1

-- name: ended_at
-- The step at which a finished run ended, and the ids of the steps of its definition.
SELECT {{ended_at_step}} AS step, jsonb_path_query_array(v.spec, '$.steps[*].id') AS ids
  FROM scheduler.job_runs r
  JOIN scheduler.job_definition_versions v ON v.definition_id = r.definition_id AND v.version = r.definition_version
 WHERE r.id = %(id)s::bigint
 LIMIT 1

-- name: begin_at_step
-- A run that was made in this transaction begins with a later step: none of its attempts goes back before it. What the earlier steps of the
-- repeated run have given as its result stands until a later step gives something else; what the failed dispatch gave does not count.
WITH moved AS (
    UPDATE scheduler.runs_live r
       SET first_step = %(step)s::integer, base_step = %(step)s::integer,
           worker_type = (SELECT v.spec #>> ARRAY['steps', (%(step)s::integer)::text, 'worker_type'] FROM scheduler.job_definition_versions v
                           WHERE v.definition_id = r.definition_id AND v.version = r.definition_version),
           result = (SELECT COALESCE((SELECT a.outcome -> 'result' FROM scheduler.job_attempts a
                                       WHERE a.run_id = s.id AND a.state = 'SUCCEEDED' AND a.outcome ? 'result' ORDER BY a.token DESC LIMIT 1),
                                     CASE WHEN f.outcome ? 'result' THEN NULL ELSE s.result END)
                       FROM scheduler.job_runs s
                       LEFT JOIN scheduler.job_attempts f ON f.run_id = s.id AND f.token = s.token AND f.log_day = s.log_day
                      WHERE s.id = r.rerun_of
                      LIMIT 1)
     WHERE r.id = %(id)s::bigint
    RETURNING r.id, r.rerun_of
)
INSERT INTO scheduler.job_events (at, run_id, type, message, actor)
SELECT clock_timestamp(), m.id, 'begins_at_step',
       'begins with step ' || %(step)s::integer + 1 || ' (' || %(step_id)s::text || '), where run ' || m.rerun_of || ' ended', %(actor)s::text
  FROM moved m

-- name: note
-- Names the runs that repeat others among the events of those.
INSERT INTO scheduler.job_events (run_id, type, message, actor, metadata)
SELECT i.source, 'rerun', 'run ' || i.made || ' repeats it' || CASE WHEN i.reason = '' THEN '' ELSE ': ' || i.reason END, %(actor)s::text,
       jsonb_build_object('run', i.made)
  FROM jsonb_to_recordset(%(runs)s::jsonb) AS i(source bigint, made bigint, reason text)

-- name: remark
-- A person's remark among the events of a run. The same one sent twice within a minute is kept once, and a run has so many at most.
WITH run AS (
    SELECT r.id FROM scheduler.job_runs r WHERE r.id = %(id)s::bigint LIMIT 1
), earlier AS (
    SELECT count(*) AS notes,
           bool_or(e.message = %(text)s::text AND e.actor = %(actor)s::text AND e.at > now() - interval '1 minute') AS same
      FROM scheduler.job_events e
     WHERE e.run_id = %(id)s::bigint AND e.type = 'note'
), made AS (
    INSERT INTO scheduler.job_events (run_id, type, message, actor)
    SELECT r.id, 'note', %(text)s::text, %(actor)s::text FROM run r CROSS JOIN earlier x
     WHERE x.same IS NOT TRUE AND x.notes < %(most)s::integer
    RETURNING run_id
), noted AS (
    INSERT INTO scheduler.admin_action_log (actor, action, target, after, address, service)
    SELECT %(actor)s::text, 'run.note', 'run ' || m.run_id, jsonb_build_object('text', %(text)s::text), %(address)s::text, %(service)s::text FROM made m
)
SELECT EXISTS (SELECT 1 FROM made) OR COALESCE(x.same, false) AS kept, EXISTS (SELECT 1 FROM run) AS found FROM earlier x
