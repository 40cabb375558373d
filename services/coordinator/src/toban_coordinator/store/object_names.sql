-- name: names
-- Names of one kind of objects. Secrets of hooks and webhooks are left out: no job may use them.
SELECT n.name
  FROM (SELECT 'executor group' AS kind, g.name FROM scheduler.executor_groups g
        UNION ALL SELECT 'hook', h.name FROM scheduler.hooks h
        UNION ALL SELECT 'job', d.name FROM scheduler.job_definitions d WHERE d.deleted_at IS NULL
        UNION ALL SELECT 'schedule', s.name FROM scheduler.schedules s
        UNION ALL SELECT 'secret', s.name FROM scheduler.secrets s WHERE s.name !~ '^(hook|webhook)[.]'
        UNION ALL SELECT 'trigger', g.name FROM scheduler.event_triggers g
        UNION ALL SELECT 'webhook', w.name FROM scheduler.webhook_targets w) n
 WHERE n.kind = %(kind)s::text
 ORDER BY n.name
 LIMIT 5000
