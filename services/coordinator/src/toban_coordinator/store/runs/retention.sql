-- name: drop_partition
-- Drops the oldest day partition that is older than so many days and that no live run needs; answers its name, or NULL.
SELECT scheduler.drop_partition((now() AT TIME ZONE 'UTC')::date - %(days)s::integer) AS dropped

-- name: event_keys
-- Forgets dedupe keys; those of events that are not processed yet stay.
WITH old AS (
    SELECT k.event_type, k.dedupe_key
      FROM scheduler.event_keys k
     WHERE k.seen_at < now() - make_interval(days => %(days)s::integer)
       AND NOT EXISTS (SELECT 1 FROM scheduler.events e WHERE e.id = k.event_id)
     ORDER BY k.seen_at
     LIMIT %(limit)s::integer
       FOR UPDATE SKIP LOCKED
)
DELETE FROM scheduler.event_keys k USING old WHERE k.event_type = old.event_type AND k.dedupe_key = old.dedupe_key

-- name: event_runs
-- Forgets which runs an event started, once it is processed.
WITH old AS (
    SELECT r.event_id, r.trigger_id
      FROM scheduler.event_runs r
     WHERE r.created_at < now() - make_interval(days => %(days)s::integer)
       AND NOT EXISTS (SELECT 1 FROM scheduler.events e WHERE e.id = r.event_id)
     ORDER BY r.created_at
     LIMIT %(limit)s::integer
       FOR UPDATE SKIP LOCKED
)
DELETE FROM scheduler.event_runs r USING old WHERE r.event_id = old.event_id AND r.trigger_id = old.trigger_id

-- name: run_slots
-- Forgets slots with the ledger rows of their runs; those of live runs stay.
WITH old AS (
    SELECT s.schedule_id, s.slot, s.run_id
      FROM scheduler.run_slots s
     WHERE s.slot < now() - make_interval(days => %(days)s::integer)
       AND NOT EXISTS (SELECT 1 FROM scheduler.runs_live r WHERE r.id = s.run_id)
     ORDER BY s.slot
     LIMIT %(limit)s::integer
       FOR UPDATE SKIP LOCKED
), ledger AS (
    DELETE FROM scheduler.fire_ledger l USING old WHERE l.schedule_id = old.schedule_id AND l.first_slot = old.slot AND l.run_id = old.run_id
)
DELETE FROM scheduler.run_slots s USING old WHERE s.schedule_id = old.schedule_id AND s.slot = old.slot

-- name: fire_ledger
-- Forgets ledger rows of slots that got no run.
WITH old AS (
    SELECT l.schedule_id, l.first_slot
      FROM scheduler.fire_ledger l
     WHERE l.run_id IS NULL AND l.last_slot < now() - make_interval(days => %(days)s::integer)
     ORDER BY l.last_slot
     LIMIT %(limit)s::integer
       FOR UPDATE SKIP LOCKED
)
DELETE FROM scheduler.fire_ledger l USING old WHERE l.schedule_id = old.schedule_id AND l.first_slot = old.first_slot

-- name: run_idempotency
-- Forgets idempotency keys; those of live runs stay.
WITH old AS (
    SELECT k.key
      FROM scheduler.run_idempotency k
     WHERE k.created_at < now() - make_interval(days => %(days)s::integer)
       AND NOT EXISTS (SELECT 1 FROM scheduler.runs_live r WHERE r.id = k.run_id)
     ORDER BY k.created_at
     LIMIT %(limit)s::integer
       FOR UPDATE SKIP LOCKED
)
DELETE FROM scheduler.run_idempotency k USING old WHERE k.key = old.key

-- name: orphan_results
-- Forgets results that were kept and never applied; those of live runs stay.
WITH old AS (
    SELECT o.run_id, o.token
      FROM scheduler.orphan_results o
     WHERE o.received_at < now() - make_interval(days => %(days)s::integer)
       AND NOT EXISTS (SELECT 1 FROM scheduler.runs_live r WHERE r.id = o.run_id)
     ORDER BY o.received_at
     LIMIT %(limit)s::integer
       FOR UPDATE SKIP LOCKED
)
DELETE FROM scheduler.orphan_results o USING old WHERE o.run_id = old.run_id AND o.token = old.token

-- name: schedules_deleted
-- Forgets deleted schedules whose ledger is gone.
WITH old AS (
    SELECT x.id
      FROM scheduler.schedules_deleted x
     WHERE x.deleted_at < now() - make_interval(days => %(days)s::integer)
       AND NOT EXISTS (SELECT 1 FROM scheduler.fire_ledger l WHERE l.schedule_id = x.id)
     LIMIT %(limit)s::integer
       FOR UPDATE SKIP LOCKED
)
DELETE FROM scheduler.schedules_deleted x USING old WHERE x.id = old.id

-- name: executors
-- Forgets incarnations that are off; those that a live run or an order still names stay. They are few, and loop `reap` drops their orders, so
-- no index is kept for it.
WITH old AS (
    SELECT e.incarnation
      FROM scheduler.executors e
     WHERE e.state = 'off' AND e.off_at < now() - make_interval(days => %(days)s::integer)
       AND NOT EXISTS (SELECT 1 FROM scheduler.runs_live r
                        WHERE r.assigned_incarnation = e.incarnation AND r.state IN ('ASSIGNED', 'RUNNING', 'CANCEL_REQUESTED', 'ORPHANED'))
       AND NOT EXISTS (SELECT 1 FROM scheduler.executor_orders o WHERE o.incarnation = e.incarnation)
     LIMIT %(limit)s::integer
       FOR UPDATE SKIP LOCKED
)
DELETE FROM scheduler.executors e USING old WHERE e.incarnation = old.incarnation

-- name: executor_instances
-- Forgets which group an instance belongs to, when nothing else is left of it.
WITH old AS (
    SELECT i.instance
      FROM scheduler.executor_instances i
     WHERE i.registered_at < now() - make_interval(days => %(days)s::integer)
       AND NOT EXISTS (SELECT 1 FROM scheduler.executors e WHERE e.instance = i.instance)
     LIMIT %(limit)s::integer
       FOR UPDATE SKIP LOCKED
)
DELETE FROM scheduler.executor_instances i USING old WHERE i.instance = old.instance

-- name: coordinators
-- Forgets coordinators that have stopped or were lost.
WITH old AS (
    SELECT c.incarnation
      FROM scheduler.coordinators c
     WHERE c.last_seen_at < now() - make_interval(days => %(days)s::integer)
     LIMIT %(limit)s::integer
       FOR UPDATE SKIP LOCKED
)
DELETE FROM scheduler.coordinators c USING old WHERE c.incarnation = old.incarnation

-- name: ensure
-- Makes the day partitions from yesterday to a week ahead; harmless when they are there.
SELECT scheduler.ensure_partitions((now() AT TIME ZONE 'UTC')::date - 1, (now() AT TIME ZONE 'UTC')::date + 7) AS made

-- name: user_sessions
-- Forgets sessions that ended long ago.
WITH old AS (
    SELECT s.secret_hash FROM scheduler.user_sessions s
     WHERE s.ends_at < now() - make_interval(days => %(days)s::integer)
     ORDER BY s.ends_at
     LIMIT %(limit)s::integer
       FOR UPDATE SKIP LOCKED
)
DELETE FROM scheduler.user_sessions s USING old WHERE s.secret_hash = old.secret_hash

-- name: api_tokens
-- Forgets tokens that ended long ago; the audit log keeps who made them.
WITH old AS (
    SELECT k.id FROM scheduler.api_tokens k
     WHERE k.ends_at < now() - make_interval(days => %(days)s::integer)
     ORDER BY k.id
     LIMIT %(limit)s::integer
       FOR UPDATE SKIP LOCKED
)
DELETE FROM scheduler.api_tokens k USING old WHERE k.id = old.id

-- name: sign_in_failures
-- Forgets failures that count for nothing any more.
WITH old AS (
    SELECT f.key FROM scheduler.sign_in_failures f
     WHERE f.last_at < now() - make_interval(days => %(days)s::integer)
     ORDER BY f.last_at
     LIMIT %(limit)s::integer
       FOR UPDATE SKIP LOCKED
)
DELETE FROM scheduler.sign_in_failures f USING old WHERE f.key = old.key

-- name: admin_action_log
-- Forgets the oldest rows of the audit, by the one function that may; answers a row for each. The anchor keeps the rest of the chain verifiable.
SELECT 1 FROM generate_series(1, scheduler.forget_audit(%(days)s::integer, %(limit)s::integer))

-- name: webhook_deliveries
-- Forgets deliveries, also those that no target took in all that time. What is sent once for a run stays while the run is live.
WITH old AS (
    SELECT d.id FROM scheduler.webhook_deliveries d
     WHERE d.created_at < now() - make_interval(days => %(days)s::integer)
       AND NOT (d.type IN ('job.late', 'job.long') AND EXISTS (SELECT 1 FROM scheduler.runs_live r WHERE r.id = d.run_id))
     ORDER BY d.created_at
     LIMIT %(limit)s::integer
       FOR UPDATE SKIP LOCKED
)
DELETE FROM scheduler.webhook_deliveries d USING old WHERE d.id = old.id
