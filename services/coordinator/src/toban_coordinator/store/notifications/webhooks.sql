-- name: targets
-- Every target with its outbox, or the one called `name`. What waits is counted up to 10,000; the age is that of what quiet hours do not hold back.
SELECT t.id, t.name, t.origin, t.form, t.secret, t.states, t.jobs, t.labels, t.enabled, t.failures, t.failing_since, t.open_until, t.last_error, t.version,
       t.updated_at, t.updated_by, t.failures >= %(breaker)s::integer AS down, w.pending, w.oldest_pending_at
  FROM scheduler.webhook_targets t
 -- The next of each target to be tried is not the oldest, so all that wait are read.
 CROSS JOIN LATERAL (SELECT count(*) AS pending, min(d.created_at) FILTER (WHERE NOT d.quiet) AS oldest_pending_at
                       FROM (SELECT d.created_at, d.postponed AND d.next_at > now() AS quiet FROM scheduler.webhook_deliveries d
                              WHERE d.target_id = t.id AND d.state = 'pending' LIMIT 10000) d) w
 WHERE %(name)s::text = '' OR t.name = %(name)s::text
 ORDER BY t.name

-- name: lock
-- The target to change, locked, so that URL and secret are read and written by one change at a time.
SELECT t.id, t.secret FROM scheduler.webhook_targets t WHERE t.name = %(name)s::text FOR UPDATE

-- name: create
-- ∅ → a target.
INSERT INTO scheduler.webhook_targets (name, origin, form, secret, states, jobs, labels, enabled, created_by, updated_by)
VALUES (%(name)s::text, %(origin)s::text, %(form)s::text, %(secret)s::text, %(states)s::text[], %(jobs)s::text[], %(labels)s::jsonb, %(enabled)s::boolean,
        %(actor)s::text, %(actor)s::text)
    ON CONFLICT (name) DO NOTHING

-- name: change
-- A target → the same with other values; those that are NULL stay. Another URL or secret, or to enable it, closes its breaker.
UPDATE scheduler.webhook_targets t
   SET origin = COALESCE(%(origin)s::text, t.origin), form = COALESCE(%(form)s::text, t.form), states = COALESCE(%(states)s::text[], t.states), jobs = COALESCE(%(jobs)s::text[], t.jobs),
       labels = COALESCE(%(labels)s::jsonb, t.labels), enabled = COALESCE(%(enabled)s::boolean, t.enabled),
       failures = CASE WHEN %(close)s::boolean THEN 0 ELSE t.failures END,
       failing_since = CASE WHEN %(close)s::boolean THEN NULL ELSE t.failing_since END,
       open_until = CASE WHEN %(close)s::boolean THEN NULL ELSE t.open_until END,
       version = t.version + 1, updated_at = now(), updated_by = %(actor)s::text
 WHERE t.name = %(name)s::text

-- name: remove
-- A target → ∅.
DELETE FROM scheduler.webhook_targets t WHERE t.name = %(name)s::text RETURNING t.secret

-- name: users
-- Jobs that notify a webhook.
SELECT d.name
  FROM scheduler.job_definitions d
 WHERE d.spec ? 'notify' AND d.deleted_at IS NULL AND d.spec -> 'notify' @> jsonb_build_array(jsonb_build_object('webhook', %(name)s::text))
 ORDER BY d.name

-- name: health
-- How many targets are in each state, and the age of the oldest delivery that was due and not tried, of targets that are not down.
SELECT count(*) FILTER (WHERE NOT t.enabled) AS disabled, count(*) FILTER (WHERE t.enabled AND t.failures = 0) AS active,
       count(*) FILTER (WHERE t.enabled AND t.failures BETWEEN 1 AND %(breaker)s::integer - 1) AS failing,
       count(*) FILTER (WHERE t.enabled AND t.failures >= %(breaker)s::integer) AS down,
       GREATEST(0, max(extract(epoch FROM now() - (SELECT d.next_at FROM scheduler.webhook_deliveries d
                                                    WHERE d.target_id = t.id AND d.state = 'pending' AND {{is_next}}
                                                    ORDER BY d.next_at LIMIT 1)))
                   FILTER (WHERE t.enabled AND t.failures < %(breaker)s::integer))::double precision AS overdue
  FROM scheduler.webhook_targets t
