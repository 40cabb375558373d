-- name: page
-- Schedules by name that fire before `until`, each with the keys of its rule alone: payloads may be large. Runs are made some seconds ahead of
-- their slots, so one whose last slot is still to come fires as well. Jobs are joined to the page, and not the page to all jobs.
SELECT s.name, s.version, d.name AS job, d.enabled, s.scope, s.scope_id,
       (s.spec - '{name,job,description,labels,enabled,payload,scope,scope_id,catch_up,on_failure}'::text[])::text AS rule
  FROM (SELECT x.* FROM scheduler.schedules x
         WHERE x.enabled AND x.status = 'active' AND (x.next_run_at < %(until)s::timestamptz OR x.last_run_at > now()) AND x.name > %(after)s::text
         ORDER BY x.name LIMIT %(limit)s::integer) s
 CROSS JOIN LATERAL (SELECT j.name, j.enabled FROM scheduler.job_definitions j WHERE j.id = s.definition_id LIMIT 1) d
 ORDER BY s.name

-- name: rest
-- How many there are after a name.
SELECT count(*)::bigint AS schedules
  FROM scheduler.schedules s JOIN scheduler.job_definitions d ON d.id = s.definition_id AND d.enabled
 WHERE s.enabled AND s.status = 'active' AND (s.next_run_at < %(until)s::timestamptz OR s.last_run_at > now()) AND s.name > %(after)s::text
