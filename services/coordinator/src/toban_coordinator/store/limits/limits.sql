-- name: values
-- What operators set, breakers, and health signals; each in rows of its own.
SELECT l.name, l.value, NULL AS state, NULL::timestamptz AS since, NULL::boolean AS by_hand, '' AS reason, '' AS updated_by, NULL::float8 AS factor,
       NULL::timestamptz AS holds_until, NULL::timestamptz AS server_time
  FROM scheduler.limits l
UNION ALL
SELECT b.name, NULL, b.state, b.since, b.by_hand, b.reason, b.updated_by, NULL, NULL, NULL FROM scheduler.breakers b
UNION ALL
SELECT s.name, NULL, s.level, s.updated_at, NULL, s.reason, s.updated_by, s.factor, s.holds_until, now() FROM scheduler.limit_signals s

-- name: current_jobs
-- The concurrency sections of the current versions of all definitions that have one, and of the definitions called `names`.
SELECT d.name, d.version, d.spec -> 'concurrency' AS concurrency
  FROM scheduler.job_definitions d
 WHERE d.spec ? 'concurrency' AND d.deleted_at IS NULL
UNION ALL
SELECT d.name, d.version, NULL
  FROM scheduler.job_definitions d
 WHERE d.name = ANY(%(names)s::text[]) AND NOT d.spec ? 'concurrency'

-- name: lock
-- One look at the limits at a time: a commit whose outcome is unknown is over before the next count.
SELECT pg_advisory_xact_lock(hashtext('scheduler.limits'))

-- name: usage
-- How limits are used, counted from live runs: sent ones, resumed ones that were not sent yet, and whether runs are deferred on them; which of
-- the runs `ids` ignore them.
SELECT k.key,
       COALESCE((SELECT sum(h.weight) FROM scheduler.limit_holds h JOIN scheduler.runs_live r ON {{holds_limit}} WHERE h.key = k.key), 0)::bigint AS held,
       COALESCE((SELECT sum(r.deferred_weight) FROM scheduler.runs_live r
                  WHERE r.state = 'PENDING' AND r.deferred_on = k.key
                    AND r.resumed_at > now() - make_interval(secs => %(reserve_seconds)s::double precision)), 0)::bigint AS reserved,
       (SELECT 1 FROM scheduler.runs_live r WHERE r.state = 'DEFERRED' AND r.deferred_on = k.key LIMIT 1) IS NOT NULL AS waiting,
       CASE WHEN k.seconds > 0
            THEN (SELECT count(*) FROM scheduler.limit_starts s WHERE s.key = k.key AND s.at > now() - make_interval(secs => k.seconds))
            ELSE 0 END AS starts,
       ARRAY(SELECT o.run_id FROM scheduler.limit_overrides o WHERE o.run_id = ANY(%(ids)s::bigint[])) AS ignoring
  FROM unnest(%(keys)s::text[], %(windows)s::integer[]) AS k(key, seconds)

-- name: adopt
-- Sent runs of jobs that have a limit now, and had none when they were sent, hold it as well.
INSERT INTO scheduler.limit_holds AS h (key, run_id, token, weight)
SELECT 'job:' || r.job_name, r.id, r.token, 1
  FROM scheduler.runs_live r
 WHERE r.job_name = ANY(%(jobs)s::text[]) AND r.state IN ('ASSIGNED', 'RUNNING', 'WAITING_WORKER', 'CANCEL_REQUESTED', 'ORPHANED') AND r.dispatched_at IS NOT NULL
   AND r.token IS NOT NULL
    ON CONFLICT (key, run_id) DO UPDATE SET token = EXCLUDED.token, weight = EXCLUDED.weight WHERE h.token <> EXCLUDED.token

-- name: hold
-- What runs that are offered in this transaction take, by their tokens.
INSERT INTO scheduler.limit_holds (key, run_id, token, weight)
SELECT * FROM unnest(%(keys)s::text[], %(ids)s::bigint[], %(tokens)s::bigint[], %(weights)s::integer[])
    ON CONFLICT (key, run_id) DO UPDATE SET token = EXCLUDED.token, weight = EXCLUDED.weight

-- name: note_starts
-- Starts that count against start rates.
INSERT INTO scheduler.limit_starts (key, token) SELECT * FROM unnest(%(keys)s::text[], %(tokens)s::bigint[])

-- name: drop_holds
-- Rows of runs that have ended, or were sent again, which are not counted. Of these limits, or of all.
DELETE FROM scheduler.limit_holds h
 USING (SELECT h.key, h.run_id
          FROM scheduler.limit_holds h
         WHERE (h.key = ANY(%(keys)s::text[]) OR %(all)s::boolean) AND NOT EXISTS (SELECT 1 FROM scheduler.runs_live r WHERE {{holds_limit}})
         LIMIT %(limit)s::integer) o
 WHERE h.key = o.key AND h.run_id = o.run_id

-- name: drop_starts
-- Starts that no window reaches any more: of a rate, or those older than the longest window.
DELETE FROM scheduler.limit_starts s
 USING unnest(%(keys)s::text[], %(windows)s::integer[]) AS k(key, seconds)
 WHERE (s.key = k.key OR k.key = '') AND s.at < now() - make_interval(secs => k.seconds)

-- name: drop_overrides
-- Runs that have ended ignore nothing any more.
DELETE FROM scheduler.limit_overrides o WHERE NOT EXISTS (SELECT 1 FROM scheduler.runs_live r WHERE r.id = o.run_id)

-- name: claim
-- Runs of slots and events hold their groups from now on; one whose group another run holds is not answered.
UPDATE scheduler.runs_live r
   SET group_claimed = true
 WHERE r.id = ANY(%(ids)s::bigint[]) AND r.state IN ('PENDING', 'ASSIGNED')
   AND NOT EXISTS (SELECT 1 FROM scheduler.runs_live o
                    WHERE o.definition_id = r.definition_id AND o.concurrency_group = r.concurrency_group AND o.group_claimed AND o.id <> r.id)
RETURNING r.id

-- name: groups
-- The live runs of groups, as far as a policy looks at them.
SELECT i.definition_id, i.concurrency_group AS "group",
       ARRAY(SELECT r.id FROM scheduler.runs_live r
              WHERE r.definition_id = i.definition_id AND r.concurrency_group = i.concurrency_group AND r.dispatched_at IS NOT NULL
                AND r.state IN ('ASSIGNED', 'RUNNING', 'WAITING_WORKER')
              ORDER BY r.scheduled_for, r.id LIMIT 20) AS sent,
       ARRAY(SELECT r.id FROM scheduler.runs_live r
              WHERE r.definition_id = i.definition_id AND r.concurrency_group = i.concurrency_group AND r.state = 'DEFERRED'
              ORDER BY r.scheduled_for, r.id LIMIT 100) AS deferred,
       e.scheduled_for AS earliest_time, e.id AS earliest_id, n.scheduled_for AS newest_time, n.id AS newest_id,
       (SELECT r.id FROM scheduler.runs_live r
         WHERE r.definition_id = i.definition_id AND r.concurrency_group = i.concurrency_group AND r.group_claimed) AS claimed_by,
       (SELECT d.run_id FROM scheduler.succeeded_keys d
         WHERE d.definition_id = i.definition_id AND d.concurrency_group = i.concurrency_group) AS succeeded
  FROM unnest(%(definition_ids)s::bigint[], %(groups)s::text[]) AS i(definition_id, concurrency_group)
  LEFT JOIN LATERAL (
    SELECT r.scheduled_for, r.id FROM scheduler.runs_live r
     WHERE r.definition_id = i.definition_id AND r.concurrency_group = i.concurrency_group
     ORDER BY r.scheduled_for, r.id LIMIT 1) e ON true
  LEFT JOIN LATERAL (
    SELECT r.scheduled_for, r.id FROM scheduler.runs_live r
     WHERE r.definition_id = i.definition_id AND r.concurrency_group = i.concurrency_group AND r.scheduled_for <= %(now)s::timestamptz
       AND r.dispatched_at IS NULL
     ORDER BY r.scheduled_for DESC, r.id DESC LIMIT 1) n ON true
