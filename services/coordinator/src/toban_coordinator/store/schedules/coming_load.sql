-- name: page
-- Schedules by name that fire before `until`, each with the keys of its rule alone: payloads may be large. Runs are made some seconds ahead of
-- their slots, so one whose last slot is still to come fires as well.
SELECT s.name, s.version, d.name AS job, s.scope, s.scope_id,
       (s.spec - '{name,job,description,labels,enabled,payload,scope,scope_id,catch_up,on_failure}'::text[])::text AS rule
  FROM scheduler.schedules s JOIN scheduler.job_definitions d ON d.id = s.definition_id AND d.enabled
 WHERE s.enabled AND s.status = 'active' AND (s.next_run_at < %(until)s::timestamptz OR s.last_run_at > now()) AND s.name > %(after)s::text
 ORDER BY s.name
 LIMIT %(limit)s::integer

-- name: rest
-- How many there are after a name.
SELECT count(*)::bigint AS schedules
  FROM scheduler.schedules s JOIN scheduler.job_definitions d ON d.id = s.definition_id AND d.enabled
 WHERE s.enabled AND s.status = 'active' AND (s.next_run_at < %(until)s::timestamptz OR s.last_run_at > now()) AND s.name > %(after)s::text
