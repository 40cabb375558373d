-- name: failures
-- Runs that failed in the last day by job and scope, the latest first. Of each state the newest are read, from the index of the states; whether a
-- run of the job has succeeded since is looked for among the next runs of the job.
WITH newest AS MATERIALIZED (
    SELECT f.*
      FROM unnest(%(states)s::text[]) AS s(state)
     CROSS JOIN LATERAL (
        SELECT r.id, r.job_name, r.scope, r.scope_id, r.finished_at
          FROM scheduler.runs_history r
         WHERE r.state = s.state::scheduler.run_state AND r.state <> 'SUCCEEDED' AND r.finished_at >= now() - interval '1 day'
         ORDER BY r.id DESC LIMIT %(read)s::integer) f
), groups AS (
    SELECT n.job_name, n.scope, n.scope_id, count(*)::bigint AS runs, max(n.id) AS last_run_id
      FROM newest n
     GROUP BY n.job_name, n.scope, n.scope_id
     ORDER BY max(n.finished_at) DESC, max(n.id) DESC
     LIMIT %(limit)s::integer
)
SELECT g.*, l.state::text AS last_state, l.finished_at AS last_finished_at, l.error_summary, l.reason, l.last_line,
       EXISTS (SELECT 1
                 FROM (SELECT h.state, h.scope, h.scope_id FROM scheduler.runs_history h
                        WHERE h.job_name = g.job_name AND h.id > g.last_run_id AND h.finished_at >= now() - interval '1 day'
                        ORDER BY h.id DESC LIMIT 200) x
                WHERE x.state = 'SUCCEEDED' AND x.scope = g.scope AND x.scope_id = g.scope_id) AS recovered,
       (SELECT count(*) FROM newest)::bigint AS found
  FROM groups g
  JOIN scheduler.runs_history l ON l.id = g.last_run_id AND l.finished_at >= now() - interval '1 day'
 ORDER BY l.finished_at DESC, l.id DESC;

-- name: missed
-- Slots of the last day that had no run of their time, by schedule and outcome, the latest first: due and not settled; skipped by the fire
-- ledger; skipped with a run. Stretches of a pause or a calendar are none.
WITH overdue AS (
    SELECT s.id AS schedule_id, 'overdue' AS outcome, 1::bigint AS slots, s.next_run_at AS slot, s.last_error AS message, 0::bigint AS run_id
      FROM scheduler.schedules s
     WHERE s.enabled AND s.status = 'active' AND s.next_run_at < now() - make_interval(secs => %(late)s::double precision)
     ORDER BY s.next_run_at LIMIT %(limit)s::integer
), ledger AS (
    SELECT l.schedule_id, l.outcome, l.slots, l.last_slot AS slot, l.message, 0::bigint AS run_id
      FROM (SELECT x.* FROM scheduler.fire_ledger x
             WHERE x.run_id IS NULL AND x.last_slot >= now() - interval '1 day'
             ORDER BY x.last_slot DESC LIMIT %(read)s::integer) l
     WHERE l.outcome IN ('late', 'overlap', 'max_wait', 'catch_up', 'submit_failed') AND l.first_slot <= now()
), skipped AS (
    SELECT r.schedule_id, r.reason AS outcome, 1::bigint AS slots, r.slot, r.error_summary AS message, r.id AS run_id
      FROM scheduler.runs_history r
     WHERE r.state = 'SKIPPED' AND r.reason IS DISTINCT FROM 'withdrawn' AND r.finished_at >= now() - interval '1 day' AND r.schedule_id IS NOT NULL AND r.slot IS NOT NULL
     ORDER BY r.id DESC LIMIT %(read)s::integer
), found AS (
    SELECT a.schedule_id, a.outcome, sum(a.slots)::bigint AS slots, max(a.slot) AS last_slot,
           (array_agg(a.message ORDER BY a.slot DESC))[1] AS message, (array_agg(a.run_id ORDER BY a.slot DESC))[1] AS run_id
      FROM (SELECT * FROM overdue UNION ALL SELECT * FROM ledger UNION ALL SELECT * FROM skipped) a
     GROUP BY a.schedule_id, a.outcome
)
SELECT s.name AS schedule, f.outcome, f.slots, f.last_slot, f.message, f.run_id
  FROM found f JOIN scheduler.schedules s ON s.id = f.schedule_id
 ORDER BY f.outcome = 'overdue' DESC, f.last_slot DESC, s.name
 LIMIT %(limit)s::integer;

-- name: coming
-- The next slots of schedules that fire within a day, by minute and job, the next ones first. Runs of slots are made some seconds ahead: theirs count.
SELECT min(f.schedule) AS schedule, f.job, (array_agg(f.timezone ORDER BY f.schedule))[1] AS timezone, min(f.at) AS at, count(*)::bigint AS schedules
  FROM (SELECT s.name AS schedule, d.name AS job, s.timezone,
               COALESCE((SELECT min(p.slot) FROM scheduler.run_slots p WHERE p.schedule_id = s.id AND p.slot > now()), s.next_run_at) AS at
          FROM (SELECT x.* FROM scheduler.schedules x JOIN scheduler.job_definitions j ON j.id = x.definition_id AND j.enabled
                 WHERE x.enabled AND x.status = 'active' AND x.next_run_at BETWEEN now() AND now() + interval '1 day'
                 ORDER BY x.next_run_at, x.id LIMIT %(read)s::integer) s
          JOIN scheduler.job_definitions d ON d.id = s.definition_id) f
 GROUP BY date_trunc('minute', f.at), f.job
 ORDER BY min(f.at), min(f.schedule)
 LIMIT %(limit)s::integer;

-- name: coming_count
-- How many schedules fire within a day, counted up to a number.
SELECT count(*)::bigint AS schedules
  FROM (SELECT 1 FROM scheduler.schedules s JOIN scheduler.job_definitions d ON d.id = s.definition_id AND d.enabled
         WHERE s.enabled AND s.status = 'active' AND s.next_run_at BETWEEN now() AND now() + interval '1 day'
         LIMIT %(limit)s::integer) x;

-- name: alert_facts
-- What the alert rules compare and PostgreSQL knows.
SELECT extract(epoch FROM now() - b.beaten_at)::double precision AS beat_age, l.worker_id IS NULL OR l.resigned_epoch = l.epoch AS leaderless,
       (SELECT count(*) FROM scheduler.schedules s WHERE s.enabled AND s.status = 'failed')::integer AS failed_schedules,
       COALESCE((SELECT extract(epoch FROM now() - e.created_at) FROM scheduler.events e ORDER BY e.id LIMIT 1), 0)::double precision AS event_age,
       (SELECT count(*) FROM scheduler.breakers b WHERE b.state = 'open')::integer AS open_breakers,
       (SELECT count(*) FROM scheduler.executors e WHERE e.state = 'on')::integer AS executors_on,
       (SELECT count(*) FROM scheduler.executors e WHERE e.state = 'cut')::integer AS executors_cut,
       COALESCE((SELECT max(v.problems) FROM scheduler.audit_verdict v), 0)::integer AS audit_problems,
       now() AS server_time
  FROM scheduler.leader l CROSS JOIN scheduler.leader_beat b;
