-- name: of_jobs
-- Jobs by name, with the labels of their present definitions.
SELECT d.name AS key, d.name AS job, coalesce(d.spec -> 'labels', '{}') AS labels, 'system' AS scope, '' AS scope_id
  FROM scheduler.job_definitions d WHERE d.name = ANY(%(keys)s::text[])

-- name: of_runs
-- The jobs and scopes of runs, live or finished.
SELECT r.id::text AS key, d.name AS job, coalesce(d.spec -> 'labels', '{}') AS labels, r.scope, r.scope_id
  FROM unnest(%(keys)s::text[]) AS k(id)
  JOIN scheduler.job_runs r ON r.id = k.id::bigint
  JOIN scheduler.job_definitions d ON d.id = r.definition_id

-- name: of_schedules
-- The jobs and scopes of schedules.
SELECT s.name AS key, d.name AS job, coalesce(d.spec -> 'labels', '{}') AS labels, s.scope, s.scope_id
  FROM scheduler.schedules s JOIN scheduler.job_definitions d ON d.id = s.definition_id
 WHERE s.name = ANY(%(keys)s::text[])

-- name: of_ledgers
-- The jobs and scopes of all schedules that have or had these names: the fire ledger keeps the slots of deleted ones.
SELECT s.id::text AS key, d.name AS job, coalesce(d.spec -> 'labels', '{}') AS labels, s.scope, s.scope_id
  FROM scheduler.schedules s JOIN scheduler.job_definitions d ON d.id = s.definition_id
 WHERE s.name = ANY(%(keys)s::text[])
UNION ALL
SELECT 'deleted ' || x.id, x.spec ->> 'job', coalesce(d.spec -> 'labels', '{}'), coalesce(x.spec ->> 'scope', 'system'),
       coalesce(x.spec ->> 'scope_id', '')
  FROM scheduler.schedules_deleted x LEFT JOIN scheduler.job_definitions d ON d.name = x.spec ->> 'job'
 WHERE x.name = ANY(%(keys)s::text[])

-- name: of_triggers
-- The jobs of triggers.
SELECT e.name AS key, d.name AS job, coalesce(d.spec -> 'labels', '{}') AS labels, 'system' AS scope, '' AS scope_id
  FROM scheduler.event_triggers e JOIN scheduler.job_definitions d ON d.id = e.definition_id
 WHERE e.name = ANY(%(keys)s::text[])
