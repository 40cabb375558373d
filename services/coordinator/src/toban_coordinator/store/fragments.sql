-- SQL that several files of this folder share.
-- Where runs are found by their ids, their state is compared as text: by a comparison of the type itself a partial index may be used too, and the
-- planner takes each for an empty one while an open snapshot keeps the entries of ended runs in them.

-- fragment: may_grant
-- Whether executor `e` gets a grant for what `a` presents (echo, nonce). Only with the row of `e` locked. The nonce must be the newest presented
-- one (0 = none yet), or granted for it. Copies of one incarnation hold different ones after their next grants: the first that presents its own
-- makes those of the others unknown.
(e.state IN ('on', 'draining', 'detached') AND e.grant_seq - a.echo <= %(lag)s::bigint AND (a.nonce = e.nonce OR a.nonce = ANY (e.nonces)))

-- fragment: next_nonces
-- The nonces granted for a.nonce, with a new one in front. An echo lets four grants pass without an answer, so four are kept; they are unique
-- also over a PostgreSQL that lost commits.
(hashtextextended(gen_random_uuid()::text, 0) & 9223372036854775807) || CASE WHEN a.nonce = e.nonce THEN e.nonces[1:3] ELSE '{}' END

-- fragment: attempts_of_sent
-- The attempt rows of the runs that CTE `sent` has assigned to their executors under this term.
INSERT INTO scheduler.job_attempts (log_day, run_id, token, attempt, leader_epoch, incarnation, worker_id, dispatched_at)
SELECT log_day, id, token, attempt, %(fence_epoch)s::bigint, assigned_incarnation, assigned_worker_id, dispatched_at FROM sent

-- fragment: note_starts
-- One row of the audit for the runs of a call that CTE `started` (id, job, rerun_of) has made; none without an action. Numbers of several runs
-- are written as spans.
INSERT INTO scheduler.admin_action_log (actor, action, target, before, after, reason, address, service)
SELECT %(actor)s::text, %(noted)s::text, CASE s.runs WHEN 1 THEN 'run ' || s.first ELSE s.runs || ' runs' END,
       CASE WHEN s.source IS NOT NULL THEN jsonb_build_object('run', s.source) END,
       jsonb_build_object('jobs', s.jobs) || CASE s.runs WHEN 1 THEN '{}' ELSE jsonb_build_object('runs',
           (SELECT string_agg(concat_ws('-', lower(r), NULLIF(upper(r) - 1, lower(r))), ',' ORDER BY r) FROM unnest(s.spans) AS r)) END,
       %(reason)s::text, %(address)s::text, %(service)s::text
  FROM (SELECT count(*) AS runs, min(id) AS first, range_agg(int8range(id, id, '[]')) AS spans, array_agg(DISTINCT job) AS jobs,
               min(rerun_of) AS source FROM started) s
 WHERE s.runs > 0 AND %(noted)s::text <> ''

-- fragment: run_to_decide
-- The columns of a live run that a decision about it reads.
r.id, r.state::text AS state, r.token, r.assigned_incarnation::text AS incarnation, r.attempt, r.max_attempts, r.lost_count, r.max_lost,
r.definition_id, r.definition_version, r.started_at IS NOT NULL AS started, r.next_step, r.locked_by,
COALESCE(r.first_step, 0) AS first_step

-- fragment: holds_limit
-- Whether live run `r` has the token of a row of limit_holds, `h`: it was sent with it, or goes on after that dispatch.
(r.id = h.run_id AND (r.token = h.token AND r.dispatched_at IS NOT NULL OR r.kept_token = h.token))

-- fragment: waiting
-- Recursive CTE `waiting`: the first PENDING run of each rank and scope. One entry of the index is read for each: ranks and scopes are few, runs may
-- be many.
(SELECT r.priority * 2 - r.catch_up::integer AS rank, r.scope, r.scope_id, r.scheduled_for FROM scheduler.runs_live r
  WHERE r.state = 'PENDING'
  ORDER BY (r.priority * 2 - r.catch_up::integer) DESC, r.scope, r.scope_id, r.scheduled_for, r.id LIMIT 1)
UNION ALL
SELECT n.rank, n.scope, n.scope_id, n.scheduled_for
  FROM waiting w CROSS JOIN LATERAL (
    (SELECT w.rank, r.scope, r.scope_id, r.scheduled_for FROM scheduler.runs_live r
      WHERE r.state = 'PENDING' AND (r.priority * 2 - r.catch_up::integer) = w.rank AND (r.scope, r.scope_id) > (w.scope, w.scope_id)
      ORDER BY r.scope, r.scope_id, r.scheduled_for, r.id LIMIT 1)
    UNION ALL
    (SELECT r.priority * 2 - r.catch_up::integer, r.scope, r.scope_id, r.scheduled_for FROM scheduler.runs_live r
      WHERE r.state = 'PENDING' AND (r.priority * 2 - r.catch_up::integer) < w.rank
      ORDER BY (r.priority * 2 - r.catch_up::integer) DESC, r.scope, r.scope_id, r.scheduled_for, r.id LIMIT 1)
    LIMIT 1) n

-- fragment: fair_scopes
-- Recursive CTE `scopes` over CTE `queue`: each scope that has runs in it, the most urgent rank first, and within it in turn from the one after
-- (scope, scope_id) on. One entry of the index is read for each: scopes may be many, runs very many.
SELECT f.rank, f.scope, f.scope_id, f.wrapped, f.rank AS top
  FROM ((SELECT r.rank, r.scope, r.scope_id, false AS wrapped FROM queue r
          WHERE r.rank = (SELECT x.rank FROM queue x ORDER BY x.rank DESC LIMIT 1)
            AND (r.scope, r.scope_id) > (%(scope)s::text, %(scope_id)s::text)
          ORDER BY r.scope, r.scope_id LIMIT 1)
        UNION ALL
        (SELECT r.rank, r.scope, r.scope_id, true FROM queue r ORDER BY r.rank DESC, r.scope, r.scope_id LIMIT 1)
        LIMIT 1) f
UNION ALL
SELECT n.rank, n.scope, n.scope_id, n.wrapped, q.top
  FROM scopes q CROSS JOIN LATERAL (
    (SELECT r.rank, r.scope, r.scope_id, q.wrapped FROM queue r
      WHERE r.rank = q.rank AND (r.scope, r.scope_id) > (q.scope, q.scope_id)
        AND (NOT q.wrapped OR q.rank < q.top OR (r.scope, r.scope_id) <= (%(scope)s::text, %(scope_id)s::text))
      ORDER BY r.scope, r.scope_id LIMIT 1)
    UNION ALL
    (SELECT r.rank, r.scope, r.scope_id, true FROM queue r
      WHERE NOT q.wrapped AND r.rank = q.top AND (r.scope, r.scope_id) <= (%(scope)s::text, %(scope_id)s::text)
      ORDER BY r.scope, r.scope_id LIMIT 1)
    UNION ALL
    (SELECT r.rank, r.scope, r.scope_id, true FROM queue r
      WHERE r.rank < q.rank
      ORDER BY r.rank DESC, r.scope, r.scope_id LIMIT 1)
    LIMIT 1) n

-- fragment: lock_runs
-- Locks the runs of a statement in the order of their ids.
SELECT r.id, r.state FROM scheduler.runs_live r WHERE r.id = ANY(%(ids)s::bigint[]) ORDER BY r.id FOR UPDATE

-- fragment: holders
-- Recursive CTE `holders`: the incarnations that hold live runs. One entry of the index is read for each: executors are few, runs may be many.
(SELECT r.assigned_incarnation AS incarnation FROM scheduler.runs_live r
  WHERE r.state IN ('ASSIGNED', 'RUNNING', 'CANCEL_REQUESTED', 'ORPHANED') AND r.assigned_incarnation IS NOT NULL
  ORDER BY r.assigned_incarnation LIMIT 1)
UNION ALL
SELECT n.incarnation
  FROM holders h CROSS JOIN LATERAL (
    SELECT r.assigned_incarnation AS incarnation FROM scheduler.runs_live r
     WHERE r.state IN ('ASSIGNED', 'RUNNING', 'CANCEL_REQUESTED', 'ORPHANED') AND r.assigned_incarnation > h.incarnation
     ORDER BY r.assigned_incarnation LIMIT 1) n

-- fragment: echoed
-- The highest grant of the row `e` that the executor is known to have received, with its question `a`.
greatest(e.echo_seq, least(a.echo, e.grant_seq))

-- fragment: signed_with_grant
-- What a coordinator signs beside a grant, as the statement that commits it reads it.
(SELECT l.epoch FROM scheduler.leader l WHERE l.id = 1) AS leader_epoch,
(SELECT l.cluster_id::text FROM scheduler.leader l WHERE l.id = 1) AS cluster_id, extract(epoch FROM now())::bigint AS granted_at

-- fragment: orphan_wait
-- Until when a run `r` that loses its executor waits for its report: only where the job continues without a lease, and the executor is not known
-- to be dead.
(SELECT now() + make_interval(secs => COALESCE((v.spec ->> 'lost_after_seconds')::double precision, %(lost_after)s::double precision))
   FROM scheduler.job_definition_versions v, scheduler.executors x
  WHERE v.definition_id = r.definition_id AND v.version = r.definition_version AND v.spec ->> 'on_lease_loss' = 'continue'
    AND x.incarnation = r.assigned_incarnation AND x.attested_reason = '')

-- fragment: definition_redact
-- The names of definition `d` whose values readers do not see.
jsonb_path_query_array(d.spec, '$.logs.redact[*] ? (@.type() == "string")')

-- fragment: run_redact
-- The names whose values readers of run `r` do not see: those of the definition that it was made from, and of the current one.
(SELECT COALESCE(jsonb_agg(DISTINCT n.name), '[]')
   FROM (SELECT d.spec FROM scheduler.job_definitions d WHERE d.id = r.definition_id
         UNION ALL
         SELECT v.spec FROM scheduler.job_definition_versions v
          WHERE v.definition_id = r.definition_id AND v.version = r.definition_version) s
  CROSS JOIN LATERAL jsonb_path_query(s.spec, '$.logs.redact[*] ? (@.type() == "string")') AS n(name))

-- fragment: ended_at_step
-- The index of the step at which run `r` ended: the last one that its last dispatch has started, or the one with which that was to begin. After
-- a dispatch that has done its own steps, the next one.
COALESCE((SELECT GREATEST(r.first_step, (COALESCE(a.outcome #> '{steps,-1,index}', a.steps #> '{-1,index}'))::integer, 0)
                 + (a.state = 'SUCCEEDED')::integer
            FROM scheduler.job_attempts a WHERE a.run_id = r.id AND a.token = r.token AND a.log_day = r.log_day), r.first_step, 0)

-- fragment: run_columns
-- The columns of a run `r` that lists and pages show, with the node of its executor `e`; payload and result are in `run_values`.
r.id, r.job_name, r.definition_version, r.schedule_name, r.origin, r.slot, r.scheduled_for, r.state::text AS state, r.attempt, r.max_attempts,
r.lost_count, r.token, r.leader_epoch, r.assigned_worker_id, r.created_at, r.assigned_at, r.dispatched_at, r.started_at, r.finished_at,
r.exit_code, r.term_signal, r.error_summary, r.reason, r.log_ref, r.cancel_reason, r.created_by, r.last_line,
r.version, r.rerun_of, r.idempotency_key, r.cancel_requested_at, r.event_id, r.trigger_name, r.scope, r.scope_id, r.deferred_on,
r.progress::text AS progress, r.phase, r.after_run, r.chain_depth, e.node_id AS executor,
CASE WHEN r.continuation_state = 'CONFIRMING' AND r.continuation_check_deadline_at > now() AND r.finished_at IS NULL
THEN 'CONFIRMING' ELSE 'NONE' END AS continuation_state, r.continuation_check_started_at, r.continuation_check_deadline_at

-- fragment: run_values
-- Payload and result of a run `r`; they are shown only with `run_redact`.
r.payload::text AS payload, r.result::text AS result

-- fragment: ended_before
-- Whether executor `e` ended before a successor of its instance registered: the successor holds the state directory on the same boot and names
-- it, or it is of another boot and silent. A clone of its machine has another boot id, too, and registers while it lives.
(CASE WHEN e.boot_id = %(boot_id)s::text THEN e.incarnation::text = %(previous)s::text
      ELSE greatest(e.last_heartbeat_at, e.granted_at) < now() - make_interval(secs => least(%(silent)s::double precision, e.lease_ms / 1000.0)) END)

-- fragment: pods_ended
-- Whether no pod of executor `e` runs, which no boot of its machine proves: its jobs are no pods, or its successor has asked the cluster and
-- names it.
(e.labels ->> 'toban.dev/steps' IS DISTINCT FROM 'kubernetes' OR (%(in_cluster)s::boolean AND e.incarnation::text = %(previous)s::text))

-- fragment: is_next
-- Whether no delivery of the same run has to arrive at the target before delivery `d`. One that waits for the end of quiet hours holds none up.
NOT EXISTS (SELECT 1 FROM scheduler.webhook_deliveries e
             WHERE e.target_id = d.target_id AND e.run_id = d.run_id AND e.state = 'pending' AND e.id < d.id
               AND NOT (e.postponed AND e.next_at > now()))

-- fragment: disabled_why
-- Until when, by whom and why a person disabled job `d`, after the words "is disabled"; '' when no person did.
CASE WHEN d.disabled_at IS NULL THEN ''
     ELSE concat(to_char(d.disabled_until AT TIME ZONE 'UTC', '" until "YYYY-MM-DD"T"HH24:MI:SS"Z"'), ' by ', d.disabled_by,
                 ': ' || NULLIF(left(d.disabled_reason, 300), '')) END

-- fragment: will_fire
-- Whether schedule `s` of job `d` makes runs, now or from the end of its pauses on.
(s.enabled AND (s.status = 'active' OR s.paused_until IS NOT NULL)
 AND (d.enabled OR (d.disabled_until IS NOT NULL AND COALESCE((d.spec ->> 'enabled')::boolean, true))))

-- fragment: resumes_at
-- When the last pause of schedule `s` of job `d` ends; null when none has an end.
GREATEST(s.paused_until, d.disabled_until)
