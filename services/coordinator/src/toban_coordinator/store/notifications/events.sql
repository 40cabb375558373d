-- name: emit
-- ∅ → inbox, and a wake-up for loop `events`. Whether its key is known already is a hint: the leader decides.
INSERT INTO scheduler.events (event_type, payload, dedupe_key, created_by)
VALUES (%(event_type)s::text, %(payload)s::jsonb, NULLIF(%(key)s::text, ''), %(actor)s::text)
RETURNING id,
    EXISTS (SELECT 1 FROM scheduler.event_keys k WHERE k.event_type = %(event_type)s::text AND k.dedupe_key = %(key)s::text)
    OR EXISTS (SELECT 1 FROM scheduler.events o WHERE o.event_type = %(event_type)s::text AND o.dedupe_key = %(key)s::text) AS duplicate,
    (SELECT pg_notify('toban_wake', 'events'))::text AS woken

-- name: due
-- Events that are not processed yet, oldest first, without those that wait for their next try. By being here, never by a cursor.
SELECT e.id, e.event_type AS type, e.payload::text AS payload, COALESCE(e.dedupe_key, '') AS key, e.created_at, e.created_by,
       e.retry_count AS tries, e.retry_triggers,
       CASE WHEN e.retry_count = 0 THEN 0 ELSE (SELECT count(*) FROM scheduler.event_runs r WHERE r.event_id = e.id) END AS runs
  FROM scheduler.events e
 WHERE e.retry_at IS NULL OR e.retry_at <= now()
 ORDER BY e.id
 LIMIT %(limit)s::integer

-- name: keys
-- Which events hold some keys now; one that is older than `days` holds it no more.
SELECT k.event_type, k.dedupe_key, k.event_id
  FROM unnest(%(types)s::text[], %(keys)s::text[]) AS i(event_type, dedupe_key)
  JOIN scheduler.event_keys k ON k.event_type = i.event_type AND k.dedupe_key = i.dedupe_key
 WHERE k.seen_at >= now() - make_interval(days => %(days)s::integer)

-- name: process
-- inbox → events_history; with it keys, runs (∅ → PENDING) and their events, all or nothing. An event is left as it is when it was processed or
-- tried meanwhile, or when a trigger that was judged for it has changed. Each event and its outcome is a row; one whose outcome is `retry`
-- stays in the inbox for `retry_later`.
WITH plan AS MATERIALIZED (
    SELECT *
      FROM unnest(%(ids)s::bigint[], %(tries)s::integer[], %(outcomes)s::text[], %(messages)s::text[], %(keeps)s::boolean[])
           AS p(id, tries, outcome, message, keeps_key)
), stale AS MATERIALIZED (
    SELECT j.event_id
      FROM unnest(%(judged_ids)s::bigint[], %(judged_triggers)s::bigint[], %(judged_versions)s::bigint[]) AS j(event_id, trigger_id, version)
      LEFT JOIN scheduler.event_triggers g ON g.id = j.trigger_id AND g.version = j.version
     WHERE g.id IS NULL
), locked AS MATERIALIZED (
    SELECT e.id, e.event_type, e.payload, e.dedupe_key, e.created_at, e.created_by, p.outcome, p.message, p.keeps_key
      FROM scheduler.events e JOIN plan p ON p.id = e.id AND p.tries = e.retry_count
     WHERE e.id NOT IN (SELECT event_id FROM stale)
     ORDER BY e.id
       FOR UPDATE OF e
), keyed AS (
    INSERT INTO scheduler.event_keys AS k (event_type, dedupe_key, event_id)
    SELECT DISTINCT ON (l.event_type, l.dedupe_key) l.event_type, l.dedupe_key, l.id
      FROM locked l
     WHERE l.keeps_key
     ORDER BY l.event_type, l.dedupe_key, l.id
        ON CONFLICT (event_type, dedupe_key) DO UPDATE
           SET event_id = EXCLUDED.event_id, seen_at = CASE WHEN k.event_id = EXCLUDED.event_id THEN k.seen_at ELSE now() END
         WHERE k.event_id = EXCLUDED.event_id OR k.seen_at < now() - make_interval(days => %(days)s::integer)
    RETURNING event_id
), settled AS MATERIALIZED (
    SELECT l.*, CASE WHEN l.keeps_key AND k.event_id IS NULL THEN 'duplicate' ELSE l.outcome END AS became
      FROM locked l LEFT JOIN keyed k ON k.event_id = l.id
), starts AS MATERIALIZED (
    SELECT nextval('scheduler.run_id_seq') AS run_id, f.*
      FROM unnest(%(event_ids)s::bigint[], %(trigger_ids)s::bigint[], %(triggers)s::text[], %(definition_ids)s::bigint[], %(versions)s::bigint[],
                  %(jobs)s::text[], %(priorities)s::integer[], %(max_attempts)s::integer[], %(max_lost)s::integer[], %(timeouts)s::integer[],
                  %(payloads)s::text[], %(groups)s::text[], %(scopes)s::text[], %(scope_ids)s::text[], %(after_runs)s::bigint[],
                  %(depths)s::integer[])
           AS f(event_id, trigger_id, trigger_name, definition_id, version, job, priority, max_attempts, max_lost, timeout, payload, concurrency_group,
                scope, scope_id, after_run, chain_depth)
      JOIN settled s ON s.id = f.event_id AND s.became <> 'duplicate'
), once AS (
    INSERT INTO scheduler.event_runs (event_id, trigger_id, run_id) SELECT event_id, trigger_id, run_id FROM starts
        ON CONFLICT (event_id, trigger_id) DO NOTHING
    RETURNING run_id
), made AS (
    INSERT INTO scheduler.runs_live (id, definition_id, definition_version, job_name, origin, scheduled_for, priority, max_attempts, max_lost,
                                     timeout_seconds, payload, event_id, trigger_name, log_ref, created_by, concurrency_group, scope, scope_id,
                                     after_run, chain_depth, worker_type)
    SELECT s.run_id, s.definition_id, s.version, s.job, 'event', now(), s.priority, s.max_attempts, s.max_lost, s.timeout, s.payload::jsonb,
           s.event_id, s.trigger_name, 'toban-log:' || s.run_id, 'trigger', s.concurrency_group, s.scope, s.scope_id, s.after_run, s.chain_depth,
           (SELECT v.spec #>> '{steps,0,worker_type}' FROM scheduler.job_definition_versions v
              WHERE v.definition_id = s.definition_id AND v.version = s.version)
      FROM starts s JOIN once o ON o.run_id = s.run_id
    RETURNING id
), gone AS (
    DELETE FROM scheduler.events e USING settled s WHERE e.id = s.id AND s.became <> 'retry' RETURNING e.id
), history AS (
    INSERT INTO scheduler.events_history (id, event_type, payload, dedupe_key, created_at, created_by, outcome, message)
    SELECT s.id, s.event_type, s.payload, s.dedupe_key, s.created_at, s.created_by, s.became,
           CASE WHEN s.became = 'duplicate' AND s.message = '' THEN 'another event has its key' ELSE s.message END
      FROM settled s JOIN gone g ON g.id = s.id
)
SELECT s.id, s.became AS outcome, (SELECT pg_notify('toban_wake', 'assign') WHERE EXISTS (SELECT 1 FROM made))::text AS woken FROM settled s

-- name: retry_later
-- inbox → a later try of some triggers, of events whose outcome in `process` of this transaction is `retry`.
UPDATE scheduler.events e
   SET retry_count = p.tried, retry_at = now() + make_interval(secs => p.delay), last_error = p.message, retry_triggers = a.names
  FROM unnest(%(ids)s::bigint[], %(tried)s::integer[], %(delays)s::double precision[], %(messages)s::text[]) AS p(id, tried, delay, message)
  JOIN (SELECT t.event_id, array_agg(t.name ORDER BY t.name) AS names
          FROM unnest(%(trigger_ids)s::bigint[], %(trigger_names)s::text[]) AS t(event_id, name)
         GROUP BY t.event_id) a ON a.event_id = p.id
 WHERE e.id = p.id

-- name: free_keys
-- Keys of events that failed and started nothing in `process` of this transaction: emitted again, such an event is tried again.
DELETE FROM scheduler.event_keys k
 USING unnest(%(ids)s::bigint[], %(types)s::text[], %(keys)s::text[]) AS i(event_id, event_type, dedupe_key)
 WHERE k.event_type = i.event_type AND k.dedupe_key = i.dedupe_key AND k.event_id = i.event_id

-- name: postpone
-- inbox → a later try of the same triggers, after the database refused the event or could not write it in time.
UPDATE scheduler.events e
   SET retry_at = now() + make_interval(secs => %(delay)s::double precision), last_error = %(error)s::text
 WHERE e.id = %(id)s::bigint AND e.retry_count = %(tries)s::integer

-- name: inbox
-- How many events wait, counted up to a limit, and how old the oldest is in seconds.
SELECT (SELECT count(*) FROM (SELECT 1 FROM scheduler.events LIMIT %(limit)s::integer) e) AS events,
       COALESCE(extract(epoch FROM now() - (SELECT o.created_at FROM scheduler.events o ORDER BY o.id LIMIT 1)), 0)::double precision AS oldest

-- name: page
-- Events below a cursor, newest first, unprocessed and processed ones together, with the runs that they started.
SELECT v.id, v.event_type, v.payload::text AS payload, v.dedupe_key, v.created_at, v.created_by, v.processed_at, v.outcome, v.message,
       ARRAY(SELECT r.run_id FROM scheduler.event_runs r WHERE r.event_id = v.id ORDER BY r.run_id) AS run_ids,
       -- What the jobs hide that such events start now, and those that this one has started.
       (SELECT COALESCE(jsonb_agg(DISTINCT n.name), '[]')
          FROM scheduler.job_definitions d CROSS JOIN LATERAL jsonb_array_elements({{definition_redact}}) AS n(name)
         WHERE d.id IN (SELECT g.definition_id FROM scheduler.event_triggers g WHERE g.event_type = v.event_type
                        UNION ALL
                        SELECT j.definition_id FROM scheduler.event_runs r CROSS JOIN LATERAL (
                            SELECT o.definition_id FROM scheduler.job_runs o WHERE o.id = r.run_id LIMIT 1) j
                         WHERE r.event_id = v.id)) AS redact
  FROM (
        (SELECT e.id, e.event_type, e.payload, e.dedupe_key, e.created_at, e.created_by, NULL::timestamptz AS processed_at, '' AS outcome,
                e.last_error AS message
           FROM scheduler.events e
          WHERE e.id < %(below)s::bigint AND (%(event_type)s::text = '' OR e.event_type = %(event_type)s::text)
          ORDER BY e.id DESC LIMIT %(limit)s::integer)
        UNION ALL
        (SELECT h.id, h.event_type, h.payload, h.dedupe_key, h.created_at, h.created_by, h.processed_at, h.outcome, h.message
           FROM scheduler.events_history h
          WHERE h.id < %(below)s::bigint AND NOT %(unprocessed)s::boolean
            AND (%(event_type)s::text = '' OR h.event_type = %(event_type)s::text)
          ORDER BY h.id DESC LIMIT %(limit)s::integer)
       ) v
 ORDER BY v.id DESC
 LIMIT %(limit)s::integer
