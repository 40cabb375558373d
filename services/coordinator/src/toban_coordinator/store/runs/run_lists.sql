-- name: live
-- Live runs. Those whose time has not come only with `ahead`.
SELECT r.id FROM scheduler.runs_live r
 WHERE {{narrowed}} AND (%(ahead)s::boolean OR r.scheduled_for <= now() OR r.dispatched_at IS NOT NULL)
 ORDER BY r.id DESC LIMIT %(limit)s::integer

-- name: finished
-- Finished runs in the order of their ids.
SELECT r.id FROM scheduler.runs_history r
 WHERE {{narrowed}} AND {{ended_since}}
 ORDER BY r.id DESC LIMIT %(limit)s::integer

-- name: finished_by_job
-- Finished runs of each of some jobs.
SELECT f.id
  FROM unnest(%(by_jobs)s::text[]) AS j(name)
 CROSS JOIN LATERAL (
    SELECT r.id FROM scheduler.runs_history r
     WHERE r.job_name = j.name AND {{narrowed}} AND {{ended_since}}
     ORDER BY r.id DESC LIMIT %(limit)s::integer) f
 ORDER BY f.id DESC LIMIT %(limit)s::integer

-- name: finished_by_job_and_state
-- Finished runs of each of some jobs in each of some states; not SUCCEEDED.
SELECT f.id
  FROM unnest(%(by_jobs)s::text[]) AS j(name) CROSS JOIN unnest(%(by_states)s::text[]) AS s(state)
 CROSS JOIN LATERAL (
    SELECT r.id FROM scheduler.runs_history r
     WHERE r.job_name = j.name AND r.state = s.state::scheduler.run_state AND r.state <> 'SUCCEEDED' AND {{narrowed}} AND {{ended_since}}
     ORDER BY r.id DESC LIMIT %(limit)s::integer) f
 ORDER BY f.id DESC LIMIT %(limit)s::integer

-- name: finished_by_state
-- Finished runs in each of some states; not SUCCEEDED.
SELECT f.id
  FROM unnest(%(by_states)s::text[]) AS s(state)
 CROSS JOIN LATERAL (
    SELECT r.id FROM scheduler.runs_history r
     WHERE r.state = s.state::scheduler.run_state AND r.state <> 'SUCCEEDED' AND {{narrowed}} AND {{ended_since}}
     ORDER BY r.id DESC LIMIT %(limit)s::integer) f
 ORDER BY f.id DESC LIMIT %(limit)s::integer

-- name: finished_by_schedule
-- Finished runs of a schedule, also of one that was deleted.
SELECT r.id FROM scheduler.runs_history r
 WHERE r.schedule_id = (SELECT COALESCE((SELECT s.id FROM scheduler.schedules s WHERE s.name = %(by_schedule)s::text),
                                        (SELECT max(x.id) FROM scheduler.schedules_deleted x WHERE x.name = %(by_schedule)s::text)))
   AND {{narrowed}} AND {{ended_since}}
 ORDER BY r.id DESC LIMIT %(limit)s::integer

-- name: finished_by_executor
-- Finished runs of each of some incarnations of executors.
SELECT f.id
  FROM unnest(%(by_workers)s::bigint[]) AS w(worker_id)
 CROSS JOIN LATERAL (
    SELECT r.id FROM scheduler.runs_history r
     WHERE r.assigned_worker_id = w.worker_id AND {{narrowed}} AND {{ended_since}}
     ORDER BY r.id DESC LIMIT %(limit)s::integer) f
 ORDER BY f.id DESC LIMIT %(limit)s::integer

-- name: finished_by_origin
-- Finished runs of an origin.
SELECT r.id FROM scheduler.runs_history r
 WHERE r.origin = %(by_origin)s::text AND {{narrowed}} AND {{ended_since}}
 ORDER BY r.id DESC LIMIT %(limit)s::integer

-- name: finished_by_scope
-- Finished runs of a scope with an id; not of scope `system`.
SELECT r.id FROM scheduler.runs_history r
 WHERE r.scope = %(by_scope)s::text AND r.scope <> 'system' AND r.scope_id = %(by_scope_id)s::text AND {{narrowed}} AND {{ended_since}}
 ORDER BY r.id DESC LIMIT %(limit)s::integer

-- name: runs
-- The rows of some runs, newest first.
SELECT {{run_columns}}, {{run_values}}, {{run_redact}} AS redact
  FROM unnest(%(ids)s::bigint[]) AS w(id)
 CROSS JOIN LATERAL (SELECT v.* FROM scheduler.job_runs v WHERE v.id = w.id LIMIT 1) r
  LEFT JOIN scheduler.executors e ON e.incarnation = r.assigned_incarnation
 ORDER BY r.id DESC

-- name: brief_runs
-- The same without payload and result.
SELECT {{run_columns}}, '' AS payload, '' AS result, '[]'::jsonb AS redact
  FROM unnest(%(ids)s::bigint[]) AS w(id)
 CROSS JOIN LATERAL (SELECT v.* FROM scheduler.job_runs v WHERE v.id = w.id LIMIT 1) r
  LEFT JOIN scheduler.executors e ON e.incarnation = r.assigned_incarnation
 ORDER BY r.id DESC

-- name: first_id_since
-- An id below which every run was created before a time: the ids of runs are searched by halves, since they grow with the time of creation but
-- for the moment that a transaction lasts.
WITH RECURSIVE search(low, high) AS (
    SELECT 1::bigint, COALESCE((SELECT max(r.id) FROM scheduler.job_runs r), 0) + 1
    UNION ALL
    SELECT CASE WHEN p.later THEN s.low ELSE m.middle + 1 END, CASE WHEN p.later THEN m.middle ELSE s.high END
      FROM search s
     CROSS JOIN LATERAL (SELECT (s.low + s.high) / 2 AS middle) m
     CROSS JOIN LATERAL (
        SELECT COALESCE((SELECT r.created_at >= %(at)s::timestamptz FROM scheduler.job_runs r WHERE r.id >= m.middle ORDER BY r.id LIMIT 1),
                        true) AS later) p
     WHERE s.low < s.high
)
SELECT min(s.high) AS id FROM search s

-- name: workers_of
-- The worker ids of an executor by node, instance or worker id, newest first.
SELECT e.worker_id FROM scheduler.executors e
 WHERE e.node_id = %(name)s::text OR e.instance = %(name)s::text OR e.worker_id::text = %(name)s::text
 ORDER BY e.worker_id DESC LIMIT %(limit)s::integer

-- name: jobs_labelled
-- The jobs whose present definition has all of some labels; of them all, or the one called `job`.
SELECT d.name FROM scheduler.labelled_definitions(%(labels)s::jsonb) d
 WHERE (%(job)s::text = '' OR d.name = %(job)s::text) AND d.deleted_at IS NULL
 ORDER BY d.name LIMIT %(limit)s::integer

-- name: jobs_beginning
-- The jobs whose names begin with a text.
SELECT d.name FROM scheduler.job_definitions d
 WHERE d.deleted_at IS NULL AND starts_with(d.name, %(start)s::text)
 ORDER BY d.name LIMIT %(limit)s::integer
