-- name: claim
-- pending → pending, leased: what is due, at most `parallel` of a target at a time and one while its breaker tries again; of several for one run the
-- first. The try counts from here on, whatever becomes of its sender.
WITH target AS MATERIALIZED (
    SELECT t.id, t.name, t.secret, t.form,
           CASE WHEN t.failures >= %(breaker)s::integer THEN 1 ELSE %(parallel)s::integer END
           - (SELECT count(*) FROM scheduler.webhook_deliveries d WHERE d.target_id = t.id AND d.lease IS NOT NULL AND d.next_at > now()) AS free
      FROM scheduler.webhook_targets t
     WHERE t.enabled AND (t.open_until IS NULL OR t.open_until <= now())
), due AS MATERIALIZED (
    SELECT d.id, t.name, t.secret, t.form
      FROM target t
     CROSS JOIN LATERAL (
           SELECT d.id, d.next_at
             FROM scheduler.webhook_deliveries d
            WHERE d.target_id = t.id AND d.state = 'pending' AND d.next_at <= now()
              AND {{is_next}}
            ORDER BY d.next_at, d.id
            LIMIT GREATEST(t.free, 0)
              FOR UPDATE SKIP LOCKED) d
     ORDER BY d.next_at, d.id
     LIMIT %(limit)s::integer
)
UPDATE scheduler.webhook_deliveries d
   SET lease = %(lease)s::uuid, next_at = now() + make_interval(secs => %(seconds)s::double precision), attempts = d.attempts + 1,
       postponed = false
  FROM due
 WHERE d.id = due.id
RETURNING d.id, d.event_id, d.type, d.run_id, d.data, d.quiet, d.created_at, due.name AS target, due.secret, due.form

-- name: postpone
-- leased → pending, not tried, each until its quiet hours end.
UPDATE scheduler.webhook_deliveries d SET lease = NULL, attempts = d.attempts - 1, postponed = true, next_at = i.until
  FROM unnest(%(ids)s::bigint[], %(untils)s::timestamptz[]) AS i(id, until)
 WHERE d.id = i.id AND d.lease = %(lease)s::uuid AND d.state = 'pending'

-- name: drop
-- leased → failed, not tried: there is nothing to send any more.
UPDATE scheduler.webhook_deliveries d
   SET state = 'failed', lease = NULL, attempts = d.attempts - 1, status = NULL, error = %(reason)s::text, ended_at = now()
 WHERE d.id = ANY(%(ids)s::bigint[]) AND d.lease = %(lease)s::uuid AND d.state = 'pending'

-- name: any_target
-- Whether something may be sent at all.
SELECT EXISTS (SELECT 1 FROM scheduler.webhook_targets t WHERE t.enabled) AS found

-- name: held
-- A claimed delivery, locked; none when its lease has gone to another.
SELECT d.id, d.target_id, d.attempts
  FROM scheduler.webhook_deliveries d
 WHERE d.id = %(id)s::bigint AND d.lease = %(lease)s::uuid AND d.state = 'pending'
   FOR UPDATE

-- name: settle
-- leased → delivered | failed | pending again after `delay` seconds.
UPDATE scheduler.webhook_deliveries d
   SET state = %(state)s::text, lease = NULL, status = %(status)s::integer, error = %(error)s::text,
       ended_at = CASE WHEN %(state)s::text <> 'pending' THEN now() END,
       next_at = now() + make_interval(secs => %(delay)s::double precision)
 WHERE d.id = %(id)s::bigint AND d.lease = %(lease)s::uuid AND d.state = 'pending'

-- name: recovered
-- A target that took a delivery: its breaker is closed. Without a write when it was closed, as nearly always.
UPDATE scheduler.webhook_targets t SET failures = 0, failing_since = NULL, open_until = NULL, last_error = ''
  FROM (SELECT x.id, x.failures FROM scheduler.webhook_targets x WHERE x.id = %(id)s::bigint AND x.failures > 0 FOR UPDATE) o
 WHERE t.id = o.id
RETURNING t.name, o.failures

-- name: failures
-- How many tries in a row have failed, with the target locked.
SELECT t.name, t.failures FROM scheduler.webhook_targets t WHERE t.id = %(id)s::bigint FOR UPDATE

-- name: note_failure
-- One more try that failed.
UPDATE scheduler.webhook_targets t
   SET failures = %(failures)s::integer, failing_since = COALESCE(t.failing_since, now()), last_error = %(error)s::text,
       open_until = CASE WHEN %(pause)s::double precision > 0 THEN now() + make_interval(secs => %(pause)s::double precision) ELSE t.open_until END
 WHERE t.id = %(id)s::bigint

-- name: add
-- ∅ → pending: an event about no run.
INSERT INTO scheduler.webhook_deliveries (target_id, type)
SELECT t.id, %(type)s::text FROM scheduler.webhook_targets t WHERE t.name = %(target)s::text
RETURNING id

-- name: page
-- Deliveries with an id below `below`, newest first.
SELECT d.id, t.name AS webhook, d.event_id::text AS event_id, d.type, d.run_id, d.state, d.attempts, d.created_at, d.next_at, d.ended_at, d.status,
       d.error
  FROM scheduler.webhook_deliveries d JOIN scheduler.webhook_targets t ON t.id = d.target_id
 WHERE d.id < %(below)s::bigint AND (%(id)s::bigint = 0 OR d.id = %(id)s::bigint) AND (%(webhook)s::text = '' OR t.name = %(webhook)s::text)
   AND (%(state)s::text = '' OR d.state = %(state)s::text) AND (%(run_id)s::bigint = 0 OR d.run_id = %(run_id)s::bigint)
 ORDER BY d.id DESC
 LIMIT %(limit)s::integer

-- name: redeliver
-- delivered | failed → pending: those of a target with these ids, or its failed ones. One that has failed and waits for its next try is due at once.
WITH again AS (
    SELECT d.id
      FROM scheduler.webhook_deliveries d
     WHERE d.target_id = (SELECT t.id FROM scheduler.webhook_targets t WHERE t.name = %(target)s::text)
       AND CASE WHEN cardinality(%(ids)s::bigint[]) = 0 THEN d.state = 'failed' ELSE d.id = ANY(%(ids)s::bigint[]) AND d.lease IS NULL END
     ORDER BY d.id
     LIMIT %(limit)s::integer
       FOR UPDATE SKIP LOCKED
)
UPDATE scheduler.webhook_deliveries d
   SET state = 'pending', attempts = 0, next_at = now(), ended_at = NULL
  FROM again
 WHERE d.id = again.id
