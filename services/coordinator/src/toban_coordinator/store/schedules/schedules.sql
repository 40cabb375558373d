-- name: due
-- Active schedules whose next slot lies before `until` and after the last one of the page before, with the definition that they start now.
SELECT s.id, s.name, d.name AS job, s.version, s.spec, s.next_run_at, s.last_run_at, s.fire_retry_count, d.id AS definition_id,
       d.version AS definition_version, d.enabled AS job_enabled, {{disabled_why}} AS job_disabled_why
  FROM scheduler.schedules s JOIN scheduler.job_definitions d ON d.id = s.definition_id
 WHERE s.enabled AND s.status = 'active' AND s.next_run_at <= %(until)s::timestamptz
   AND (s.fire_retry_at IS NULL OR s.fire_retry_at <= %(now)s::timestamptz)
   AND (s.next_run_at, s.id) > (%(after_slot)s::timestamptz, %(after_id)s::bigint)
 ORDER BY s.next_run_at, s.id
 LIMIT %(limit)s::integer

-- name: made_slots
-- Slots from the next one of each schedule on that have runs already: those of now, which were made before missed ones.
SELECT p.schedule_id, p.slot
  FROM unnest(%(ids)s::bigint[], %(froms)s::timestamptz[]) AS i(schedule_id, first)
  JOIN scheduler.run_slots p ON p.schedule_id = i.schedule_id AND p.slot >= i.first

-- name: next_slot
-- The earliest slot that is not settled yet, of schedules that do not wait for a retry.
SELECT s.next_run_at AS at
  FROM scheduler.schedules s
 WHERE s.enabled AND s.status = 'active' AND s.next_run_at IS NOT NULL AND s.fire_retry_at IS NULL
 ORDER BY s.next_run_at
 LIMIT 1

-- name: fire
-- Slot advance by compare-and-set on (version, next_run_at), or none where slots of now go before missed ones; with it the runs (∅ → PENDING),
-- their slots, events and the ledger of fired slots.
-- A schedule that an edit holds is left out: it waits for its own edit, and no other schedule waits with it.
-- `(… IN …) IS TRUE` is looked up in a hash table. As joins the planner, which expects one row, compares each schedule with each other one.
WITH plan AS MATERIALIZED (
    SELECT *
      FROM ROWS FROM (
               unnest(%(ids)s::bigint[], %(row_versions)s::bigint[], %(expected)s::timestamptz[], %(nexts)s::timestamptz[], %(lasts)s::timestamptz[],
                      %(names)s::text[], %(definition_ids)s::bigint[], %(versions)s::bigint[], %(jobs)s::text[], %(priorities)s::integer[],
                      %(max_attempts)s::integer[], %(max_lost)s::integer[], %(timeouts)s::integer[]),
               jsonb_array_elements_text(%(scopes)s::jsonb),
               jsonb_array_elements_text(%(scope_ids)s::jsonb),
               jsonb_array_elements(%(payloads)s::jsonb),
               jsonb_array_elements_text(%(groups)s::jsonb))
           AS p(id, row_version, expected, next_run_at, last_run_at, name, definition_id, version, job, priority, max_attempts, max_lost, timeout,
                scope, scope_id, payload, concurrency_group)
), locked AS MATERIALIZED (
    SELECT s.id FROM scheduler.schedules s WHERE s.id = ANY(%(ids)s::bigint[]) ORDER BY s.id FOR UPDATE SKIP LOCKED
), won AS (
    UPDATE scheduler.schedules s
       SET next_run_at = p.next_run_at, last_run_at = GREATEST(p.last_run_at, s.last_run_at), fire_retry_at = NULL,
           -- A plan of slots of now that stays before the missed ones says nothing of those.
           fire_retry_count = CASE WHEN p.next_run_at = p.expected THEN s.fire_retry_count ELSE 0 END,
           last_error = CASE WHEN p.next_run_at = p.expected THEN s.last_error ELSE '' END
      FROM plan p
     WHERE s.id = p.id AND s.version = p.row_version AND s.next_run_at = p.expected AND (p.id IN (SELECT id FROM locked)) IS TRUE
    RETURNING s.id
), fires AS MATERIALIZED (
    -- Numbered in the order of their slots: people read lists of runs by number.
    SELECT nextval('scheduler.run_id_seq') AS run_id, o.*
      FROM (SELECT f.slot, f.delay, f.late, f.own_payload, f.own_group, p.*
              -- Payloads and groups of slots that have their own; without any, there are none to read.
              FROM ROWS FROM (
                       unnest(%(fire_ids)s::bigint[], %(fire_slots)s::timestamptz[], %(fire_delays)s::double precision[],
                              %(fire_late)s::boolean[]),
                       jsonb_array_elements(%(fire_payloads)s::jsonb),
                       jsonb_array_elements_text(%(fire_groups)s::jsonb))
                   AS f(schedule_id, slot, delay, late, own_payload, own_group)
              JOIN won w ON w.id = f.schedule_id
              JOIN plan p ON p.id = f.schedule_id
             ORDER BY f.slot, f.schedule_id) o
), slots AS (
    INSERT INTO scheduler.run_slots (schedule_id, slot, run_id) SELECT id, slot, run_id FROM fires ON CONFLICT (schedule_id, slot) DO NOTHING
    RETURNING run_id
), made AS (
    INSERT INTO scheduler.runs_live (id, definition_id, definition_version, job_name, schedule_id, schedule_name, origin, slot, scheduled_for, priority,
                                     max_attempts, max_lost, timeout_seconds, scope, scope_id, payload, log_ref, created_by, concurrency_group,
                                     not_before, catch_up, worker_type)
    SELECT f.run_id, f.definition_id, f.version, f.job, f.id, f.name, 'slot', f.slot, f.slot, f.priority, f.max_attempts, f.max_lost, f.timeout,
           f.scope, f.scope_id, COALESCE(NULLIF(f.own_payload, 'null'), f.payload), 'toban-log:' || f.run_id, 'schedule',
           CASE WHEN f.own_payload <> 'null' THEN f.own_group ELSE f.concurrency_group END,
           CASE WHEN f.delay > 0 THEN f.slot + make_interval(secs => f.delay) END, f.late,
           (SELECT v.spec #>> '{steps,0,worker_type}' FROM scheduler.job_definition_versions v
              WHERE v.definition_id = f.definition_id AND v.version = f.version)
      FROM fires f
     WHERE (f.run_id IN (SELECT run_id FROM slots)) IS TRUE
    RETURNING id, schedule_id, slot, not_before
), fired AS (
    INSERT INTO scheduler.fire_ledger AS l (schedule_id, first_slot, last_slot, outcome, run_id, message)
    SELECT schedule_id, slot, slot, 'fired', id,
           CASE WHEN not_before IS NULL THEN '' ELSE 'spread: starts ' || extract(epoch FROM not_before - slot)::integer || ' s after its slot' END
      FROM made
        ON CONFLICT (schedule_id, first_slot) DO UPDATE
           SET outcome = 'fired', run_id = EXCLUDED.run_id, message = concat_ws('; ', NULLIF(l.message, ''), NULLIF(EXCLUDED.message, '')),
               created_at = now()
         WHERE l.outcome = 'withdrawn'
)
SELECT ARRAY(SELECT id FROM won) AS advanced, (SELECT count(*) FROM made) AS made

-- name: skip
-- ∅ → skipped: the ledger rows of slots without a run, of schedules that `fire` advanced in this transaction.
WITH plan AS MATERIALIZED (
    SELECT *
      FROM unnest(%(ids)s::bigint[], %(firsts)s::timestamptz[], %(lasts)s::timestamptz[], %(slots)s::bigint[], %(outcomes)s::text[],
                  %(messages)s::text[])
           AS k(schedule_id, first_slot, last_slot, slots, outcome, message)
), skipped AS (
    INSERT INTO scheduler.fire_ledger AS l (schedule_id, first_slot, last_slot, slots, outcome, message)
    SELECT schedule_id, first_slot, last_slot, slots, outcome, message FROM plan
        -- The first slot may have been withdrawn, or given up on alone: the stretch takes its row over.
        ON CONFLICT (schedule_id, first_slot) DO UPDATE
           SET last_slot = EXCLUDED.last_slot, slots = EXCLUDED.slots, outcome = EXCLUDED.outcome, message = EXCLUDED.message, created_at = now()
         WHERE l.run_id IS NULL AND l.last_slot <= EXCLUDED.last_slot
)
-- Slots of the stretch that an edit had withdrawn one by one: the stretch stands for them now.
DELETE FROM scheduler.fire_ledger l
 USING plan k
 WHERE l.schedule_id = k.schedule_id AND l.first_slot > k.first_slot AND l.first_slot <= k.last_slot AND l.outcome = 'withdrawn'

-- name: fire_failed
-- A fire that could not be made: the next try, or status failed with the slot in the ledger as submit_failed. Nothing while an edit holds it.
WITH free AS MATERIALIZED (
    SELECT s.id FROM scheduler.schedules s WHERE s.id = %(id)s::bigint FOR UPDATE SKIP LOCKED
), hit AS (
    UPDATE scheduler.schedules s
       SET fire_retry_count = s.fire_retry_count + %(counted)s::boolean::integer, fire_retry_at = now() + make_interval(secs => %(delay)s::double precision),
           last_error = %(error)s::text, status = CASE WHEN %(final)s::boolean THEN 'failed' ELSE s.status END,
           status_reason = CASE WHEN %(final)s::boolean THEN %(error)s::text ELSE s.status_reason END,
           status_actor = CASE WHEN %(final)s::boolean THEN 'leader' ELSE s.status_actor END
      FROM free f
     WHERE s.id = f.id AND s.version = %(row_version)s::bigint AND s.next_run_at = %(expected)s::timestamptz
    RETURNING s.id, s.next_run_at
), ledger AS (
    INSERT INTO scheduler.fire_ledger (schedule_id, first_slot, last_slot, outcome, message)
    SELECT id, next_run_at, next_run_at, 'submit_failed', %(error)s::text FROM hit WHERE %(final)s::boolean
        ON CONFLICT (schedule_id, first_slot) DO NOTHING
)
SELECT id FROM hit

-- name: failed_spec
-- The definition of a schedule, and the names whose values its readers do not see.
SELECT s.spec, {{definition_redact}} AS redact
  FROM scheduler.schedules s JOIN scheduler.job_definitions d ON d.id = s.definition_id
 WHERE s.id = %(id)s::bigint;

-- name: remove_failed
-- A schedule that `fire_failed` has given up on in this transaction goes away. The ledger row of its first slot stands for all that are due; what
-- its ledger and one of the same name need is kept, and the audit has it.
WITH gone AS (
    DELETE FROM scheduler.schedules s WHERE s.id = %(id)s::bigint AND s.version = %(row_version)s::bigint AND s.status = 'failed'
    RETURNING s.id, s.name, s.spec, s.version, s.next_run_at, s.last_error
), due AS (
    UPDATE scheduler.fire_ledger l SET last_slot = %(last)s::timestamptz, slots = %(slots)s::bigint
      FROM gone g
     WHERE l.schedule_id = g.id AND l.first_slot = g.next_run_at AND l.outcome = 'submit_failed'
), kept AS (
    INSERT INTO scheduler.schedules_deleted (id, name, spec, settled_until, deleted_by, reason)
    SELECT id, name, spec, %(last)s::timestamptz, 'leader', 'on_failure: ' || last_error FROM gone
)
INSERT INTO scheduler.admin_action_log (actor, action, target, before, after, reason)
SELECT 'leader', 'schedule.delete', 'schedule ' || name,
       jsonb_build_object('version', version, 'status', 'failed', 'spec', %(shown)s::jsonb, 'until', next_run_at), NULL, 'on_failure: ' || last_error
  FROM gone

-- name: counts
-- How many schedules there are by status; disabled ones by that word.
SELECT count(*) FILTER (WHERE s.enabled AND s.status = 'active') AS active, count(*) FILTER (WHERE s.enabled AND s.status = 'paused') AS paused,
       count(*) FILTER (WHERE s.enabled AND s.status = 'failed') AS failed, count(*) FILTER (WHERE NOT s.enabled) AS disabled
  FROM scheduler.schedules s

-- name: pause_ends
-- The earliest ends of pauses of schedules and of disables of jobs.
SELECT x.kind, x.name, x.until
  FROM ((SELECT 'job' AS kind, d.name, d.disabled_until AS until FROM scheduler.job_definitions d
          WHERE d.disabled_until IS NOT NULL AND d.deleted_at IS NULL
          ORDER BY d.disabled_until LIMIT %(limit)s::integer)
        UNION ALL
        (SELECT 'schedule', s.name, s.paused_until FROM scheduler.schedules s
          WHERE s.paused_until IS NOT NULL
          ORDER BY s.paused_until LIMIT %(limit)s::integer)) x
 ORDER BY x.until, x.kind, x.name
 LIMIT %(limit)s::integer
