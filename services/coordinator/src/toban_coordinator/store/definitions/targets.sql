-- name: of_jobs
-- Jobs by name, with the labels of their present definitions.
SELECT d.name AS key, d.name AS job, coalesce(d.spec -> 'labels', '{}') AS labels, 'system' AS scope, '' AS scope_id
  FROM scheduler.job_definitions d WHERE d.name = ANY(%(keys)s::text[])

-- name: of_runs
-- The jobs and scopes of runs, live or finished.
SELECT r.id::text AS key, r.job_name AS job, coalesce(d.spec -> 'labels', '{}') AS labels, r.scope, r.scope_id
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
  FROM scheduler.schedules_deleted x
  LEFT JOIN LATERAL (SELECT j.spec FROM scheduler.job_definitions j
                      WHERE j.name = x.spec ->> 'job' OR (j.deleted_at IS NOT NULL AND j.deleted_name = x.spec ->> 'job')
                      ORDER BY j.deleted_at DESC NULLS FIRST LIMIT 1) d ON true
 WHERE x.name = ANY(%(keys)s::text[])

-- name: of_job_uses
-- Jobs by name with everything that is deleted or canceled with them: schedules, the scopes of live runs, triggers that start other jobs at
-- their ends.
SELECT concat_ws(' ', d.id, u.scope, u.scope_id) AS key, d.name AS job, coalesce(d.spec -> 'labels', '{}') AS labels, u.scope, u.scope_id
  FROM scheduler.job_definitions d
 CROSS JOIN LATERAL (
    SELECT 'system' AS scope, '' AS scope_id
     UNION SELECT s.scope, s.scope_id FROM scheduler.schedules s WHERE s.definition_id = d.id
     UNION SELECT r.scope, r.scope_id FROM scheduler.runs_live r WHERE r.definition_id = d.id) u
 WHERE d.name = ANY(%(keys)s::text[])
UNION
SELECT 'trigger ' || g.id, d.name, coalesce(d.spec -> 'labels', '{}'), 'system', ''
  FROM scheduler.event_triggers g JOIN scheduler.job_definitions d ON d.id = g.definition_id
 WHERE g.run_end AND g.event_type IN (SELECT '@run-end:' || k.name FROM unnest(%(keys)s::text[]) AS k(name))

-- name: of_triggers
-- The jobs of triggers.
SELECT e.name AS key, d.name AS job, coalesce(d.spec -> 'labels', '{}') AS labels, 'system' AS scope, '' AS scope_id
  FROM scheduler.event_triggers e JOIN scheduler.job_definitions d ON d.id = e.definition_id
 WHERE e.name = ANY(%(keys)s::text[])

-- name: definitions
-- What stored definitions reach beyond their jobs.
SELECT d.name, coalesce(d.spec -> 'labels', '{}') AS labels, coalesce((d.spec ->> 'priority')::integer, 0) AS priority,
       ARRAY(SELECT jsonb_path_query(d.spec, '$.notify[*].webhook') #>> '{}') AS webhooks
  FROM scheduler.job_definitions d WHERE d.name = ANY(%(names)s::text[])

-- name: opening_labels
-- Labels that open something to the jobs that have them: a trigger starts at the ends of their runs, a webhook is for them, a
-- group of executors runs them.
SELECT p.key, p.value FROM unnest(%(keys)s::text[], %(values)s::text[]) AS p (key, value)
 WHERE EXISTS (SELECT FROM scheduler.event_triggers g WHERE g.run_end AND g.spec -> 'on_run_end' -> 'labels' ->> p.key = p.value)
    OR EXISTS (SELECT FROM scheduler.webhook_targets w WHERE w.labels ->> p.key = p.value)
    OR EXISTS (SELECT FROM scheduler.executor_groups x WHERE x.job_labels ->> p.key = p.value)
 ORDER BY p.key

-- name: closed_webhooks
-- Webhooks that are not by their own filter for this job.
SELECT w.name FROM scheduler.webhook_targets w
 WHERE w.name = ANY(%(names)s::text[])
   AND NOT ((w.jobs <> '{}' OR w.labels <> '{}') AND (w.jobs = '{}' OR %(job)s::text = ANY(w.jobs)) AND %(labels)s::jsonb @> w.labels)
 ORDER BY w.name

-- name: kept_for
-- Secrets and webhooks that are for few jobs, this one among them, and triggers at the ends of its runs.
SELECT 'the secret ' || s.name AS what FROM scheduler.secrets s WHERE %(job)s::text = ANY(s.jobs)
UNION ALL SELECT 'the webhook ' || w.name FROM scheduler.webhook_targets w WHERE %(job)s::text = ANY(w.jobs)
UNION ALL SELECT 'the trigger ' || g.name FROM scheduler.event_triggers g WHERE g.run_end AND g.event_type = '@run-end:' || %(job)s::text
 ORDER BY what LIMIT 10
