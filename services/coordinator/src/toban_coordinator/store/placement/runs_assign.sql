-- fragment: due_columns
-- What placing a due run reads of it.
c.id, c.definition_id, c.definition_version, c.job_name, c.state::text AS state, c.origin, c.slot, c.scheduled_for, c.attempt, c.lost_count,
c.payload::text AS payload, (c.checkpoint -> 'value')::text AS checkpoint, c.first_step,
c.timeout_seconds, c.assigned_incarnation::text AS placed_on, c.started_at IS NOT NULL AS started,
c.concurrency_group AS "group", c.group_claimed AS claimed, c.deferred_on, c.not_before, c.kept_token IS NOT NULL AS keeps_limits,
c.schedule_id IS NOT NULL AND EXISTS (
    SELECT 1 FROM scheduler.runs_live o
     WHERE o.schedule_id = c.schedule_id AND (o.scheduled_for, o.id) < (c.scheduled_for, c.id)) AS overlaps

-- fragment: due_ahead
-- Runs that were placed ahead and whose time has come, from `due_from` on.
SELECT r.priority * 2 - r.catch_up::integer AS rank, r.*, 0 AS turn, 0 AS share
  FROM scheduler.runs_live r
 WHERE r.state = 'ASSIGNED' AND r.dispatched_at IS NULL
   AND r.scheduled_for >= %(due_from)s::timestamptz AND r.scheduled_for <= %(now)s::timestamptz
   AND (r.not_before IS NULL OR r.not_before <= %(now)s::timestamptz)
   AND (r.definition_id, r.definition_version) NOT IN (
       SELECT b.id, b.version FROM unnest(%(blocked)s::bigint[], %(blocked_versions)s::bigint[]) AS b(id, version))
 ORDER BY r.scheduled_for, r.id LIMIT %(limit)s::integer

-- fragment: due_now
-- The run may start, and its definition is none of those that are blocked now.
r.scheduled_for <= %(now)s::timestamptz AND (r.not_before IS NULL OR r.not_before <= %(now)s::timestamptz)
AND (r.definition_id, r.definition_version) NOT IN (
    SELECT b.id, b.version FROM unnest(%(blocked)s::bigint[], %(blocked_versions)s::bigint[]) AS b(id, version))

-- fragment: last_pending
-- The PENDING run that comes last of all.
SELECT r.priority * 2 - r.catch_up::integer AS rank, r.scope, r.scope_id
  FROM scheduler.runs_live r WHERE r.state = 'PENDING'
 ORDER BY (r.priority * 2 - r.catch_up::integer), r.scope DESC, r.scope_id DESC, r.scheduled_for DESC, r.id DESC LIMIT 1

-- fragment: took
-- Seconds that PostgreSQL has spent on this statement so far: without what the way to it, and a busy caller, take.
extract(epoch FROM clock_timestamp() - statement_timestamp())::double precision AS took

-- fragment: held_before
-- Runs that a read found that counted all runs and that were sent before `sent_from`: each by its id, whatever the planner takes the table for.
SELECT r.*
  FROM unnest(%(held_before)s::bigint[]) AS o(id)
 CROSS JOIN LATERAL (
    SELECT x.id, x.token, x.state, x.dispatched_at, x.assigned_incarnation FROM scheduler.runs_live x WHERE x.id = o.id OFFSET 0) r
 WHERE r.state IN ('ASSIGNED', 'RUNNING', 'CANCEL_REQUESTED') AND r.dispatched_at < %(sent_from)s::timestamptz

-- fragment: loads
-- What each incarnation that is not off holds, with the runs of it that were sent before `settled`.
SELECT e.incarnation::text AS incarnation, e.worker_id, e.instance, e.grpc_host, e.grpc_port, e.state, e.slots, e.load, e.labels, e.last_heartbeat_at,
       d.instance IS NOT NULL AS drained, h.held, h.smallest_token, h.settled, e.executor_group, e.isolation, coalesce(g.job_labels, '{}') AS job_labels
  FROM scheduler.executors e
  LEFT JOIN scheduler.executor_groups g ON g.name = e.executor_group
  LEFT JOIN scheduler.executor_drains d ON d.instance = e.instance
 CROSS JOIN LATERAL (
    SELECT count(*) AS held, min(c.token) FILTER (WHERE c.state = 'ASSIGNED') AS smallest_token,
           array_agg(c.id) FILTER (WHERE c.dispatched_at < %(settled)s::timestamptz) AS settled
      FROM (SELECT r.id, r.token, r.state, r.dispatched_at
              FROM scheduler.runs_live r
             WHERE r.assigned_incarnation = e.incarnation AND r.state IN ('ASSIGNED', 'RUNNING', 'CANCEL_REQUESTED')
               AND r.dispatched_at >= %(sent_from)s::timestamptz
            UNION ALL
            SELECT b.id, b.token, b.state, b.dispatched_at FROM held_before b WHERE b.assigned_incarnation = e.incarnation) c) h
 WHERE e.state <> 'off'

-- name: due_runs
-- Runs that may start now: PENDING ones, and ones that were placed ahead and whose time has come. The most urgent rank first, and within it
-- scopes in turn, as far as `depth` goes; `share` is how many runs of each scope were looked for.
WITH RECURSIVE queue AS NOT MATERIALIZED (
    SELECT r.priority * 2 - r.catch_up::integer AS rank, r.* FROM scheduler.runs_live r WHERE r.state = 'PENDING'
), scopes AS (
    {{fair_scopes}}
), listed AS MATERIALIZED (
    -- Numbered first: the count sorts them by rank alone, and leaves those of one rank in any order.
    SELECT q.rank, q.scope, q.scope_id, q.turn, count(*) OVER (PARTITION BY q.rank) AS scopes
      FROM (SELECT s.*, row_number() OVER () AS turn FROM scopes s
             WHERE (SELECT 1 FROM queue r WHERE r.rank = s.rank AND r.scope = s.scope AND r.scope_id = s.scope_id AND {{due_now}}
                     ORDER BY r.scheduled_for, r.id LIMIT 1) IS NOT NULL
             LIMIT %(limit)s::integer) q
)
SELECT {{due_columns}}, c.priority, c.scope, c.scope_id, c.catch_up, c.turn, c.share, {{took}}
  FROM (
        SELECT x.*, l.turn, s.share
          FROM listed l
         CROSS JOIN LATERAL (SELECT CASE WHEN %(depth)s::integer > 0 THEN %(depth)s::integer ELSE %(limit)s::integer / l.scopes + 1 END AS share) s
         CROSS JOIN LATERAL (
            SELECT r.* FROM queue r
             WHERE r.rank = l.rank AND r.scope = l.scope AND r.scope_id = l.scope_id AND {{due_now}}
             ORDER BY r.scheduled_for, r.id LIMIT s.share) x
        UNION ALL
        ({{due_ahead}})
       ) c
 ORDER BY c.rank DESC, c.turn, c.scheduled_for, c.id

-- name: due_runs_of_one_scope
-- The same while the due runs have one rank and one scope, as without tenants: the index has them in their order, so they have when the first due
-- run agrees with the last run of all, which is read only when there may be more due runs than were found. One row at least, which says whether
-- there are several.
WITH last AS MATERIALIZED (
    {{last_pending}}
), found AS MATERIALIZED (
    SELECT r.priority * 2 - r.catch_up::integer AS rank, r.*, 1 AS turn, 0 AS share
      FROM scheduler.runs_live r
     WHERE r.state = 'PENDING' AND {{due_now}}
     ORDER BY (r.priority * 2 - r.catch_up::integer) DESC, r.scope, r.scope_id, r.scheduled_for, r.id LIMIT %(limit)s::integer
)
SELECT k.several, {{took}}, {{due_columns}}
  FROM (SELECT CASE WHEN (SELECT count(*) FROM found) < %(limit)s::integer
                    THEN (SELECT count(*) > 1 FROM (SELECT DISTINCT f.rank, f.scope, f.scope_id FROM found f) d)
                    ELSE EXISTS (SELECT 1 FROM found f JOIN last l ON (f.rank, f.scope, f.scope_id) <> (l.rank, l.scope, l.scope_id))
               END AS several) k
  LEFT JOIN (
        SELECT * FROM found
        UNION ALL
        ({{due_ahead}})
       ) c ON NOT k.several
 ORDER BY c.rank DESC, c.turn, c.scheduled_for, c.id

-- name: due_runs_from
-- What has become due since a read of the same rank and scope: it begins in the index where that one found the first run.
SELECT {{due_columns}}, c.priority, c.scope, c.scope_id, c.catch_up
  FROM ((SELECT r.priority * 2 - r.catch_up::integer AS rank, r.*, 0 AS turn, 0 AS share
           FROM scheduler.runs_live r
          WHERE r.state = 'PENDING' AND (r.priority * 2 - r.catch_up::integer) = %(rank)s::integer
            AND r.scope = %(scope)s::text AND r.scope_id = %(scope_id)s::text AND r.scheduled_for >= %(due_from)s::timestamptz AND {{due_now}}
          ORDER BY r.scheduled_for, r.id LIMIT %(limit)s::integer)
        UNION ALL
        ({{due_ahead}})) c
 ORDER BY c.rank DESC, c.scheduled_for, c.id

-- name: loads_and_due
-- `executor_loads`, and `due_runs_of_one_scope` for no more than the free slots, what executors take beyond them (`queues`), and some beside, in
-- one statement: for turns while runs wait for slots. The first row has the loads, a line each, also when no run is due.
WITH held_before AS MATERIALIZED (
    {{held_before}}
), loads AS MATERIALIZED (
    {{loads}}
), room AS MATERIALIZED (
    SELECT CASE WHEN f.free > 0 THEN f.free + %(beside)s::bigint ELSE 0 END AS most
      FROM (SELECT sum(GREATEST(l.slots + COALESCE((%(queues)s::jsonb ->> l.incarnation)::integer, 0) - l.held, 0)) AS free
              FROM loads l WHERE l.state = 'on' AND NOT l.drained) f
), last AS MATERIALIZED (
    {{last_pending}}
), found AS MATERIALIZED (
    -- The constant limit (MOST_LOOKED_AT) is what the planner knows: without it it may sort all PENDING runs. For a plan that is kept it takes any
    -- other limit for a tenth of the rows, and of a large backlog it would make a new plan in each turn, which takes longer than to read.
    SELECT f.*
      FROM (SELECT r.priority * 2 - r.catch_up::integer AS rank, r.*, 1 AS turn, 0 AS share
              FROM scheduler.runs_live r
             WHERE r.state = 'PENDING' AND {{due_now}}
             ORDER BY (r.priority * 2 - r.catch_up::integer) DESC, r.scope, r.scope_id, r.scheduled_for, r.id LIMIT 1000) f
     LIMIT LEAST(%(limit)s::integer, (SELECT most FROM room))
)
SELECT k.several, {{took}}, CASE WHEN row_number() OVER () = 1 THEN (SELECT string_agg(to_json(l)::text, E'\n') FROM loads l) END AS loads, {{due_columns}}
  FROM (SELECT CASE WHEN (SELECT count(*) FROM found) < LEAST(%(limit)s::integer, (SELECT most FROM room))
                    THEN (SELECT count(*) > 1 FROM (SELECT DISTINCT f.rank, f.scope, f.scope_id FROM found f) d)
                    ELSE EXISTS (SELECT 1 FROM found f JOIN last l ON (f.rank, f.scope, f.scope_id) <> (l.rank, l.scope, l.scope_id))
               END AS several) k
  LEFT JOIN (
        SELECT * FROM found
        UNION ALL
        -- The most urgent of those that are looked at: of thousands that were placed ahead only these are looked at for overlaps, and sent.
        (SELECT a.* FROM ({{due_ahead}}) a ORDER BY a.rank DESC, a.scheduled_for, a.id LIMIT (SELECT most FROM room))
       ) c ON NOT k.several
 ORDER BY c.rank DESC, c.turn, c.scheduled_for, c.id

-- name: due_offers
-- Runs whose external step may be offered now, the most urgent first: while executors are full, since offers need none.
SELECT {{due_columns}}, c.priority, c.scope, c.scope_id, c.catch_up
  FROM (SELECT r.* FROM scheduler.runs_live r
         WHERE r.state = 'PENDING' AND r.worker_type IS NOT NULL AND {{due_now}}
         ORDER BY (r.priority * 2 - r.catch_up::integer) DESC, r.scope, r.scope_id, r.scheduled_for, r.id LIMIT %(limit)s::integer) c
 ORDER BY c.priority * 2 - c.catch_up::integer DESC, c.scheduled_for, c.id

-- name: unsent_run
-- One live run that was not sent, as placing it reads it.
SELECT {{due_columns}}, c.priority, c.scope, c.scope_id, c.catch_up, c.deferred_weight, now() AS server_time
  FROM scheduler.runs_live c
 WHERE c.id = %(id)s::bigint AND (c.state IN ('PENDING', 'DEFERRED') OR (c.state = 'ASSIGNED' AND c.dispatched_at IS NULL))

-- name: ahead_runs
-- PENDING runs of the next seconds, which get a named executor before their time. By a clock that is behind, a rerun from a later step may be
-- one; that step may need no executor.
SELECT r.id, r.definition_id, r.definition_version
  FROM scheduler.runs_live r
 WHERE r.state = 'PENDING' AND r.scheduled_for > %(now)s::timestamptz AND r.scheduled_for <= %(until)s::timestamptz AND r.base_step IS NULL
 ORDER BY r.scheduled_for, r.id
 LIMIT %(limit)s::integer

-- name: outlook
-- When the next run becomes due after `now`, and whether a run up to `until` has no named executor yet. Of waiting runs one entry of the index
-- is read for each rank and scope, and of due ones, which may wait for their next attempt, the first `limit`: runs behind those wait for a slot.
WITH RECURSIVE waiting AS (
    {{waiting}}
), ahead AS MATERIALIZED (
    SELECT min(n.scheduled_for) AS at
      FROM waiting w CROSS JOIN LATERAL (
        SELECT r.scheduled_for FROM scheduler.runs_live r
         WHERE r.state = 'PENDING' AND (r.priority * 2 - r.catch_up::integer) = w.rank AND r.scope = w.scope AND r.scope_id = w.scope_id
           AND r.scheduled_for > %(now)s::timestamptz
         ORDER BY r.scheduled_for, r.id LIMIT 1) n
), again AS MATERIALIZED (
    SELECT min(n.not_before) AS at
      FROM waiting w CROSS JOIN LATERAL (
        SELECT r.not_before FROM scheduler.runs_live r
         WHERE r.state = 'PENDING' AND (r.priority * 2 - r.catch_up::integer) = w.rank AND r.scope = w.scope AND r.scope_id = w.scope_id
           AND r.scheduled_for <= %(now)s::timestamptz
         ORDER BY r.scheduled_for, r.id LIMIT %(limit)s::integer) n
     WHERE n.not_before > %(now)s::timestamptz
)
SELECT LEAST(
    (SELECT min(r.scheduled_for) FROM scheduler.runs_live r
      WHERE r.state = 'ASSIGNED' AND r.dispatched_at IS NULL AND r.scheduled_for > %(now)s::timestamptz),
    (SELECT min(r.not_before) FROM scheduler.runs_live r
      WHERE r.state = 'ASSIGNED' AND r.dispatched_at IS NULL AND r.scheduled_for <= %(now)s::timestamptz AND r.not_before > %(now)s::timestamptz),
    (SELECT at FROM ahead), (SELECT at FROM again)) AS next_due,
    coalesce((SELECT at FROM ahead) <= %(until)s::timestamptz, false) AS unnamed, {{took}}

-- name: executor_loads
-- Every incarnation that is not off, with what it holds, and the smallest token there whose start is not confirmed.
WITH held_before AS MATERIALIZED (
    {{held_before}}
), loads AS MATERIALIZED (
    {{loads}}
)
SELECT l.*, {{took}} FROM loads l

-- name: place
-- PENDING, or ASSIGNED and not sent → ASSIGNED and sent: token, day of the logs, attempt row and what it takes of limits in one statement.
-- Executors that are not `on` get nothing; those that are stay locked against a fence. They are locked before the runs: `locked` waits for `takers`.
-- Brings its own fence, the first lock of all: `takers` waits for it. One row says that it held.
WITH fence AS MATERIALIZED (
    {{fence}}
), input AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::bigint[], %(tokens)s::bigint[], %(incarnations)s::uuid[], %(next_steps)s::integer[])
                  AS i(id, token, incarnation, next_step)
), takers AS MATERIALIZED (
    SELECT e.incarnation, e.worker_id
      FROM scheduler.executors e
     WHERE e.incarnation = ANY(%(executors)s::uuid[]) AND e.state = 'on' AND (SELECT count(*) FROM fence) = 1
     ORDER BY e.incarnation
       FOR SHARE
), locked AS MATERIALIZED (
    SELECT r.id, r.state
      FROM scheduler.runs_live r
     WHERE r.id = ANY(%(ids)s::bigint[]) AND r.state IN ('PENDING', 'ASSIGNED') AND r.dispatched_at IS NULL
       AND (SELECT count(*) FROM takers) > 0
     ORDER BY r.id
       FOR UPDATE
), sent AS (
    UPDATE scheduler.runs_live r
       SET state = 'ASSIGNED', token = i.token, log_day = (now() AT TIME ZONE 'UTC')::date, leader_epoch = %(fence_epoch)s::bigint,
           assigned_incarnation = e.incarnation, assigned_worker_id = e.worker_id, assigned_at = COALESCE(r.assigned_at, now()),
           dispatched_at = now(), not_before = NULL, deferred_on = NULL, deferred_weight = NULL, resumed_at = NULL, version = r.version + 1,
           next_step = i.next_step, kept_token = NULL
      FROM input i JOIN locked l ON l.id = i.id JOIN takers e ON e.incarnation = i.incarnation
     WHERE r.id = ANY(%(ids)s::bigint[]) AND r.id = i.id AND r.state = l.state AND r.dispatched_at IS NULL
    RETURNING r.id, r.token, r.attempt, r.log_day, r.dispatched_at, r.assigned_incarnation, r.assigned_worker_id
), attempt AS (
    {{attempts_of_sent}}
), hold AS (
    INSERT INTO scheduler.limit_holds (key, run_id, token, weight)
    SELECT h.key, s.id, s.token, h.weight
      FROM unnest(%(hold_keys)s::text[], %(hold_ids)s::bigint[], %(hold_weights)s::integer[]) AS h(key, id, weight) JOIN sent s ON s.id = h.id
        ON CONFLICT (key, run_id) DO UPDATE SET token = EXCLUDED.token, weight = EXCLUDED.weight
)
SELECT s.id, s.log_day::text AS log_day FROM fence LEFT JOIN sent s ON true

-- name: name_executors
-- PENDING → ASSIGNED ahead of time: an executor is named, nothing is sent, no token is drawn. Locks as in `place`.
WITH input AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::bigint[], %(incarnations)s::uuid[]) AS i(id, incarnation)
), takers AS MATERIALIZED (
    SELECT e.incarnation, e.worker_id
      FROM scheduler.executors e
     WHERE e.incarnation = ANY(%(executors)s::uuid[]) AND e.state = 'on'
     ORDER BY e.incarnation
       FOR SHARE
), locked AS MATERIALIZED (
    SELECT r.id
      FROM scheduler.runs_live r
     WHERE r.id = ANY(%(ids)s::bigint[]) AND r.state::text = 'PENDING' AND (SELECT count(*) FROM takers) > 0
     ORDER BY r.id
       FOR UPDATE
), moved AS (
    UPDATE scheduler.runs_live r
       SET state = 'ASSIGNED', assigned_incarnation = e.incarnation, assigned_worker_id = e.worker_id, assigned_at = now(), version = r.version + 1
      FROM input i JOIN locked l ON l.id = i.id JOIN takers e ON e.incarnation = i.incarnation
     WHERE r.id = ANY(%(ids)s::bigint[]) AND r.id = i.id AND r.state::text = 'PENDING'
    RETURNING r.id, r.assigned_worker_id
), event AS (
    INSERT INTO scheduler.job_events (run_id, type, from_state, to_state, metadata)
    SELECT id, 'assigned', 'PENDING', 'ASSIGNED', jsonb_build_object('worker_id', assigned_worker_id) FROM moved
)
SELECT id FROM moved

-- name: unconfirmed
-- Sent runs that no report has confirmed: their start goes out again, or is taken back from an executor that takes no work any more (`closed`). A
-- page begins after the last run of the one before.
SELECT r.id, r.token, r.definition_id, r.definition_version, r.job_name, r.slot, r.attempt, r.payload::text AS payload, r.timeout_seconds,
       (r.checkpoint -> 'value')::text AS checkpoint, r.first_step, r.priority, r.log_day::text AS log_day, r.dispatched_at, r.assigned_incarnation::text AS incarnation, e.worker_id, e.grpc_host, e.grpc_port,
       d.instance IS NOT NULL OR e.state <> 'on' AS closed
  FROM scheduler.runs_live r
  JOIN scheduler.executors e ON e.incarnation = r.assigned_incarnation
  LEFT JOIN scheduler.executor_drains d ON d.instance = e.instance
 WHERE r.state = 'ASSIGNED' AND e.state <> 'off' AND r.id > %(after)s::bigint
   AND r.dispatched_at IS NOT NULL AND (r.dispatched_at < %(before)s::timestamptz OR d.instance IS NOT NULL OR e.state <> 'on')
 ORDER BY r.id
 LIMIT %(limit)s::integer

-- name: to_cancel
-- Sent runs whose cancel waits for its proof, by pages as in `unconfirmed`.
SELECT r.id, r.token, r.definition_id, r.definition_version, r.cancel_mode, r.cancel_reason, r.assigned_incarnation::text AS incarnation,
       e.worker_id, e.grpc_host, e.grpc_port
  FROM scheduler.runs_live r JOIN scheduler.executors e ON e.incarnation = r.assigned_incarnation
 WHERE r.state = 'CANCEL_REQUESTED' AND r.token IS NOT NULL AND e.state <> 'off' AND r.id > %(after)s::bigint
 ORDER BY r.id
 LIMIT %(limit)s::integer

-- name: previous_results
-- For live runs: the result of the last run of the same job and scope before it that SUCCEEDED.
SELECT r.id, p.result
  FROM scheduler.runs_live r
  CROSS JOIN LATERAL (
       SELECT h.result
         FROM scheduler.runs_history h
        WHERE h.job_name = r.job_name AND h.id < r.id AND h.state = 'SUCCEEDED' AND h.scope = r.scope AND h.scope_id = r.scope_id
        ORDER BY h.id DESC
        LIMIT 1) p
 WHERE r.id = ANY(%(runs)s::bigint[])
