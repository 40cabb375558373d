-- name: jobs_with_rules
-- Jobs that notify a webhook of runs that are late or last long, behind a number.
SELECT d.id
  FROM scheduler.job_definitions d
 WHERE d.spec ? 'notify' AND d.id > %(after)s::bigint AND d.spec @? '$.notify[*].on[*] ? (@ == "long" || @ == "late")'
 ORDER BY d.id
 LIMIT %(limit)s::integer

-- name: overdue_runs
-- Live runs of these jobs that have lasted, or waited for their start, for longer than a rule of their job says, and about which its webhook has no
-- event yet.
SELECT r.id AS run_id, d.name AS job, w.id AS target_id, w.name AS webhook, r.type, rule -> 'quiet_hours' AS quiet
  FROM scheduler.job_definitions d
 CROSS JOIN LATERAL jsonb_array_elements(d.spec -> 'notify') AS rule
  JOIN scheduler.webhook_targets w ON w.enabled AND w.name = rule ->> 'webhook'
 CROSS JOIN LATERAL (
       -- In the order of an index, of this job alone: else the planner, which does not know how few jobs have rules, reads all live runs.
       SELECT r.id, n.type
         FROM scheduler.runs_live r
        CROSS JOIN LATERAL (VALUES
              ('job.long', rule -> 'on' ? 'long' AND r.state NOT IN ('PENDING', 'DEFERRED', 'ASSIGNED')
                           AND r.started_at < now() - make_interval(secs => (rule ->> 'long_after_seconds')::double precision)),
              ('job.late', rule -> 'on' ? 'late' AND r.started_at IS NULL
                           AND r.scheduled_for < now() - make_interval(secs => (rule ->> 'late_after_seconds')::double precision))) AS n(type, fits)
        WHERE r.definition_id = d.id AND n.fits
          AND NOT EXISTS (SELECT 1 FROM scheduler.webhook_deliveries e WHERE e.run_id = r.id AND e.target_id = w.id AND e.type = n.type)
        ORDER BY r.id
        LIMIT %(limit)s::integer) r
 WHERE d.id = ANY(%(ids)s::bigint[]) AND d.spec ? 'notify'
 ORDER BY r.id
 LIMIT %(limit)s::integer

-- name: add
-- ∅ → pending: what was found of runs that are still live and, where they are late, have not started.
WITH input AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(found)s::jsonb) AS i(run_id bigint, target_id bigint, type text, quiet jsonb)
), locked AS MATERIALIZED (
    SELECT r.id, r.started_at FROM scheduler.runs_live r WHERE r.id IN (SELECT i.run_id FROM input i) ORDER BY r.id FOR SHARE
)
INSERT INTO scheduler.webhook_deliveries (target_id, type, run_id, quiet, once)
SELECT i.target_id, i.type, i.run_id, NULLIF(i.quiet, 'null'), true
  FROM input i JOIN locked l ON l.id = i.run_id
 WHERE (i.type = 'job.late') = (l.started_at IS NULL)
   AND NOT EXISTS (SELECT 1 FROM scheduler.webhook_deliveries e WHERE e.run_id = i.run_id AND e.target_id = i.target_id AND e.type = i.type)
    ON CONFLICT DO NOTHING
RETURNING run_id, target_id, type

-- fragment: expects
-- Whether job `d` is to succeed regularly.
(d.spec ? 'expect_success_within_seconds' AND d.deleted_at IS NULL AND d.disabled_at IS NULL AND NOT d.spec @> '{"enabled": false}')

-- fragment: last_at
-- When job `d` last succeeded, as its runs or, when those are gone, `job_successes` say; else when it was made. Runs may end in another order than
-- that of their ids.
COALESCE(GREATEST((SELECT max(h.finished_at)
                     FROM (SELECT h.finished_at FROM scheduler.runs_history h
                            WHERE h.job_name = d.name AND h.state = 'SUCCEEDED' ORDER BY h.id DESC LIMIT 20) h),
                  (SELECT s.at FROM scheduler.job_successes s WHERE s.definition_id = d.id)),
         d.created_at)

-- name: expecting_jobs
-- Jobs that are to succeed regularly, behind a number.
SELECT d.id
  FROM scheduler.job_definitions d
 WHERE {{expects}} AND d.id > %(after)s::bigint
 ORDER BY d.id
 LIMIT %(limit)s::integer

-- name: silent_jobs
-- Those of these jobs that have not succeeded for longer than they expect, and that is not noted yet.
SELECT d.id
  FROM scheduler.job_definitions d
 WHERE d.id = ANY(%(ids)s::bigint[]) AND {{expects}}
   AND NOT EXISTS (SELECT 1 FROM scheduler.job_silences o WHERE o.definition_id = d.id)
   AND {{last_at}} < now() - make_interval(secs => (d.spec ->> 'expect_success_within_seconds')::double precision)
 ORDER BY d.id

-- name: note_silences
-- ∅ → noted, and an event for each webhook that the job notifies of it; those of these jobs that are still without a success.
WITH noted AS (
    INSERT INTO scheduler.job_silences (definition_id, last_at)
    SELECT d.id, l.last_at
      FROM scheduler.job_definitions d CROSS JOIN LATERAL (SELECT {{last_at}} AS last_at) l
     WHERE d.id = ANY(%(ids)s::bigint[]) AND {{expects}}
       AND l.last_at < now() - make_interval(secs => (d.spec ->> 'expect_success_within_seconds')::double precision)
        ON CONFLICT (definition_id) DO NOTHING
    RETURNING definition_id, last_at
), event AS (
    INSERT INTO scheduler.webhook_deliveries (target_id, type, data, quiet)
    SELECT w.id, 'job.missing',
           jsonb_build_object('job', jsonb_build_object('name', d.name, 'labels', COALESCE(d.spec -> 'labels', '{}'), 'since', n.last_at,
                                                        'expected_within_seconds', d.spec -> 'expect_success_within_seconds')),
           rule -> 'quiet_hours'
      FROM noted n
      JOIN scheduler.job_definitions d ON d.id = n.definition_id
     CROSS JOIN LATERAL jsonb_array_elements(d.spec -> 'notify') AS rule
      JOIN scheduler.webhook_targets w ON w.enabled AND w.name = rule ->> 'webhook'
     WHERE rule -> 'on' ? 'missing'
)
SELECT d.name, n.last_at, (d.spec ->> 'expect_success_within_seconds')::double precision AS expected_within_seconds
  FROM noted n JOIN scheduler.job_definitions d ON d.id = n.definition_id
 ORDER BY d.name

-- name: noted_jobs
-- Jobs whose silence is noted, behind a number.
SELECT o.definition_id AS id
  FROM scheduler.job_silences o
 WHERE o.definition_id > %(after)s::bigint
 ORDER BY o.definition_id
 LIMIT %(limit)s::integer

-- name: any_stale
-- Whether `drop_silences` has something to do for these jobs.
SELECT EXISTS (SELECT 1 FROM scheduler.job_silences o JOIN scheduler.job_definitions d ON d.id = o.definition_id
                WHERE o.definition_id = ANY(%(ids)s::bigint[]) AND (NOT {{expects}} OR {{last_at}} > o.last_at)) AS found

-- name: drop_silences
-- noted → ∅, of these jobs: of those that expect no success any more, and of those that succeeded while their silence was being written. Of these, the statement
-- that ended the run could not know: what it would have sent follows.
WITH gone AS (
    DELETE FROM scheduler.job_silences o USING scheduler.job_definitions d
     WHERE d.id = o.definition_id AND o.definition_id = ANY(%(ids)s::bigint[]) AND (NOT {{expects}} OR {{last_at}} > o.last_at)
    RETURNING o.definition_id, o.last_at
), event AS (
    INSERT INTO scheduler.webhook_deliveries (target_id, type, run_id, quiet)
    SELECT w.id, 'job.recovered', h.id, rule -> 'quiet_hours'
      FROM gone g
      JOIN scheduler.job_definitions d ON d.id = g.definition_id
     CROSS JOIN LATERAL (SELECT h.id FROM scheduler.runs_history h
                          WHERE h.job_name = d.name AND h.state = 'SUCCEEDED' AND h.finished_at > g.last_at ORDER BY h.id DESC LIMIT 1) h
     CROSS JOIN LATERAL jsonb_array_elements(d.spec -> 'notify') AS rule
      JOIN scheduler.webhook_targets w ON w.enabled AND w.name = rule ->> 'webhook'
     WHERE rule -> 'on' ? 'recovered' AND {{expects}}
       AND NOT EXISTS (SELECT 1 FROM scheduler.webhook_deliveries e WHERE e.run_id = h.id AND e.target_id = w.id AND e.type = 'job.recovered')
)
SELECT definition_id FROM gone

-- name: remember_successes
-- When those of these jobs that expect one last succeeded, where that is not about to change: once for each time that a job has not succeeded for half
-- a day.
INSERT INTO scheduler.job_successes AS s (definition_id, at)
SELECT d.id, l.last_at
  FROM scheduler.job_definitions d CROSS JOIN LATERAL (SELECT {{last_at}} AS last_at) l
 WHERE d.id = ANY(%(ids)s::bigint[]) AND {{expects}} AND l.last_at > d.created_at AND l.last_at < now() - interval '12 hours'
    ON CONFLICT (definition_id) DO UPDATE SET at = EXCLUDED.at WHERE s.at < EXCLUDED.at
