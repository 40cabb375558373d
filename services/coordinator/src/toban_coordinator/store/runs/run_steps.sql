-- name: note
-- The steps that live attempts have started: onto their runs, by (run, token, incarnation), unless more are known. `phase` is the id of the last one.
WITH input AS MATERIALIZED (
    SELECT i.id, i.token, i.incarnation, i.steps
      FROM jsonb_to_recordset(%(notes)s::jsonb) AS i(id bigint, token bigint, incarnation uuid, steps jsonb)
), locked AS MATERIALIZED (
    SELECT r.id FROM scheduler.runs_live r WHERE r.id = ANY(%(ids)s::bigint[]) ORDER BY r.id FOR NO KEY UPDATE
)
UPDATE scheduler.runs_live r
   SET steps = i.steps, version = r.version + 1,
       phase = COALESCE((SELECT v.spec #>> ARRAY['steps', i.steps #>> '{-1,index}', 'id']
                           FROM scheduler.job_definition_versions v
                          WHERE v.definition_id = r.definition_id AND v.version = r.definition_version), r.phase)
  FROM input i JOIN locked l ON l.id = i.id
 WHERE r.id = ANY(%(ids)s::bigint[]) AND r.id = i.id AND r.token = i.token AND r.assigned_incarnation = i.incarnation
   AND r.state::text IN ('ASSIGNED', 'RUNNING', 'CANCEL_REQUESTED')
   AND jsonb_array_length(COALESCE(r.steps, '[]')) < jsonb_array_length(i.steps)
RETURNING r.id

-- name: details
-- The steps of a run as its definition has them, those that the dispatches of its last attempt have started, whether there is a checkpoint, and how it is canceled.
SELECT v.spec -> 'steps' AS definition, r.state::text AS state, COALESCE(r.first_step, 0) AS first_step, {{ended_at_step}} AS ended_at,
       (SELECT jsonb_agg(s.step ORDER BY d.token, s.place)
          FROM (SELECT a.token, COALESCE(a.outcome -> 'steps', a.steps, CASE WHEN a.token = l.token THEN l.steps END) AS steps,
                       a.state = 'SUCCEEDED' OR a.token = max(a.token) OVER () AS counts, a.attempt, max(a.attempt) OVER () AS last_attempt
                  FROM scheduler.job_attempts a WHERE a.run_id = r.id) d
         CROSS JOIN LATERAL jsonb_array_elements(d.steps) WITH ORDINALITY AS s(step, place)
         WHERE d.attempt = d.last_attempt AND d.counts) AS started,
       l.checkpoint IS NOT NULL AS has_checkpoint, l.cancel_mode
  FROM scheduler.job_runs r
  JOIN scheduler.job_definition_versions v ON v.definition_id = r.definition_id AND v.version = r.definition_version
  LEFT JOIN scheduler.runs_live l ON l.id = r.id
 WHERE r.id = %(id)s::bigint
 LIMIT 1

-- name: checkpoint
-- What a live attempt keeps for the next one of its run, by (run, token, incarnation), unless a later one of the attempt is there. A run that is
-- not found has gone on without the attempt; one that is, and keeps its later checkpoint, counts as stored.
UPDATE scheduler.runs_live r
   SET checkpoint = CASE WHEN (r.checkpoint ->> 'token')::bigint = %(token)s::bigint AND (r.checkpoint ->> 'seq')::bigint > %(seq)s::bigint
                         THEN r.checkpoint
                         ELSE jsonb_build_object('token', %(token)s::bigint, 'seq', %(seq)s::bigint, 'value', %(value)s::jsonb) END
 WHERE r.id = %(id)s::bigint AND r.token = %(token)s::bigint AND r.assigned_incarnation = %(incarnation)s::uuid
   AND r.state::text IN ('ASSIGNED', 'RUNNING', 'CANCEL_REQUESTED')
RETURNING r.id
