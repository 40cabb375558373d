-- fragment: chosen
-- Definitions `d` that a list is narrowed to; an empty part means any.
d.deleted_at IS NULL AND position(lower(%(part)s::text) IN lower(d.name)) > 0
AND (%(labels)s::jsonb = '{}' OR d.spec -> 'labels' @> %(labels)s::jsonb)
AND (NOT %(disabled)s::boolean OR NOT d.enabled)
AND (cardinality(%(names)s::text[]) = 0 OR d.name = ANY(%(names)s::text[]))

-- fragment: ahead
-- The earliest slot to come of each schedule that has rows made ahead; these are few.
ahead AS (SELECT p.schedule_id, min(p.slot) AS slot FROM scheduler.run_slots p WHERE p.slot > now() GROUP BY p.schedule_id)

-- name: by_name
-- Jobs after a name.
SELECT d.name FROM scheduler.job_definitions d
 WHERE {{chosen}} AND d.name > %(after)s::text
 ORDER BY d.name LIMIT %(limit)s::integer

-- name: by_next_run
-- Jobs after a time and a name, those that fire next first, those without a next run last. A pause counts with its end: no rule is known here.
WITH {{ahead}}, next AS (
    SELECT s.definition_id, min(GREATEST(COALESCE(a.slot, s.next_run_at), {{resumes_at}})) AS at
      FROM scheduler.schedules s JOIN scheduler.job_definitions d ON d.id = s.definition_id LEFT JOIN ahead a ON a.schedule_id = s.id
     WHERE {{will_fire}} AND COALESCE(a.slot, s.next_run_at) IS NOT NULL
     GROUP BY s.definition_id
), found AS (
    SELECT d.name, COALESCE(n.at, 'infinity') AS at
      FROM scheduler.job_definitions d LEFT JOIN next n ON n.definition_id = d.id
     WHERE {{chosen}}
)
SELECT f.name, NULLIF(f.at, 'infinity') AS next_run_at
  FROM found f
 WHERE (f.at, f.name) > (%(after_at)s::timestamptz, %(after)s::text)
 ORDER BY f.at, f.name LIMIT %(limit)s::integer

-- name: next_runs
-- When each of some jobs fires next; no row for one that does not, or not before the end of a pause.
SELECT d.name, min(COALESCE((SELECT min(p.slot) FROM scheduler.run_slots p WHERE p.schedule_id = s.id AND p.slot > now()), s.next_run_at)) AS at
  FROM scheduler.job_definitions d JOIN scheduler.schedules s ON s.definition_id = d.id
 WHERE d.name = ANY(%(jobs)s::text[]) AND d.deleted_at IS NULL AND d.enabled AND s.enabled AND s.status = 'active'
 GROUP BY d.name

-- name: recent_runs
-- The newest runs of each of some jobs whose time has come, live and finished ones.
SELECT d.name AS job, x.id, x.state::text AS state, x.scheduled_for, x.started_at, x.finished_at
  FROM scheduler.job_definitions d
 CROSS JOIN LATERAL (
    SELECT u.*
      FROM ((SELECT r.id, r.state, r.scheduled_for, r.started_at, r.finished_at
               FROM scheduler.runs_live r
              WHERE r.definition_id = d.id AND (r.scheduled_for <= now() OR r.dispatched_at IS NOT NULL)
              ORDER BY r.id DESC LIMIT %(history)s::integer)
            UNION ALL
            (SELECT r.id, r.state, r.scheduled_for, r.started_at, r.finished_at
               FROM scheduler.runs_history r
              WHERE r.job_name = d.name AND r.scheduled_for <= now()
              ORDER BY r.id DESC LIMIT %(history)s::integer)) u
     ORDER BY u.id DESC LIMIT %(history)s::integer) x
 WHERE d.name = ANY(%(jobs)s::text[]) AND d.deleted_at IS NULL
 ORDER BY d.name, x.id DESC

-- name: failing
-- Jobs of which a run failed and none of the next 200 ended ones succeeded; of each state the newest are read, from the index of the states.
WITH newest AS MATERIALIZED (
    SELECT f.*
      FROM unnest(%(states)s::text[]) AS s(state)
     CROSS JOIN LATERAL (
        SELECT r.id, r.job_name FROM scheduler.runs_history r
         WHERE r.state = s.state::scheduler.run_state AND r.state <> 'SUCCEEDED'
         ORDER BY r.id DESC LIMIT %(read)s::integer) f
), last AS (
    SELECT n.job_name, max(n.id) AS id FROM newest n GROUP BY n.job_name
)
SELECT l.job_name AS name
  FROM last l
 WHERE NOT EXISTS (SELECT 1
                     FROM (SELECT h.state FROM scheduler.runs_history h
                            WHERE h.job_name = l.job_name AND h.id > l.id
                            ORDER BY h.id LIMIT 200) x
                    WHERE x.state = 'SUCCEEDED')
