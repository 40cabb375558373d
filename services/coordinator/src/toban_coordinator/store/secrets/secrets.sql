-- name: find
-- Encrypted values of some names, with the jobs that may use them.
SELECT s.name, s.key_id, s.nonce, s.ciphertext, s.jobs FROM scheduler.secrets s WHERE s.name = ANY(%(names)s::text[])

-- name: use
-- As `find`, for orders of some jobs (one name and one job each). Notes their use, at most once a minute of each secret, and not while another
-- transaction changes it: no order waits for that.
WITH noted AS (
    UPDATE scheduler.secrets s SET last_used_at = now()
     WHERE s.name IN (
           SELECT x.name FROM scheduler.secrets x
             JOIN unnest(%(names)s::text[], %(jobs)s::text[]) AS u(name, job) ON u.name = x.name
            WHERE (x.jobs = '{}' OR u.job = ANY(x.jobs)) AND (x.last_used_at IS NULL OR x.last_used_at < now() - interval '1 minute')
              FOR UPDATE OF x SKIP LOCKED))
SELECT s.name, s.key_id, s.nonce, s.ciphertext, s.jobs FROM scheduler.secrets s WHERE s.name = ANY(%(names)s::text[])

-- name: stored
-- Every secret without its value, or the one called `name`, with the current definitions, the webhook and the hook that use it. Deleted
-- definitions stay for their runs, and use nothing.
SELECT s.name, s.key_id, s.jobs, s.version, s.created_at, s.updated_at, s.updated_by, s.last_used_at,
       COALESCE(u.jobs, '{}') || ARRAY(SELECT 'webhook/' || w.name FROM scheduler.webhook_targets w WHERE w.secret = s.name)
       || ARRAY(SELECT 'hook/' || h.name FROM scheduler.hooks h WHERE h.secret = s.name) AS used_by
  FROM scheduler.secrets s
  LEFT JOIN (
       SELECT jsonb_path_query(d.spec, '$.secrets[*].name') #>> '{}' AS secret, array_agg(DISTINCT d.name ORDER BY d.name) AS jobs
         FROM scheduler.job_definitions d
        WHERE d.spec ? 'secrets' AND d.deleted_at IS NULL
        GROUP BY 1) u ON u.secret = s.name
 WHERE %(name)s::text = '' OR s.name = %(name)s::text
 ORDER BY s.name
 LIMIT 10000

-- name: key_ids
-- How many secrets each key encrypts.
SELECT s.key_id, count(*) AS secrets FROM scheduler.secrets s GROUP BY s.key_id

-- name: store
-- ∅ or a value → a value. `jobs` NULL: they stay.
INSERT INTO scheduler.secrets AS s (name, key_id, nonce, ciphertext, jobs, created_by, updated_by)
VALUES (%(name)s::text, %(key_id)s::text, %(nonce)s::bytea, %(ciphertext)s::bytea, COALESCE(%(jobs)s::text[], '{}'), %(actor)s::text,
        %(actor)s::text)
    ON CONFLICT (name) DO UPDATE
       SET key_id = EXCLUDED.key_id, nonce = EXCLUDED.nonce, ciphertext = EXCLUDED.ciphertext, jobs = COALESCE(%(jobs)s::text[], s.jobs),
           version = s.version + 1, updated_at = now(), updated_by = EXCLUDED.updated_by

-- name: with_other_key
-- Secrets that another key than the first one encrypts, locked.
SELECT s.name, s.key_id, s.nonce, s.ciphertext, s.jobs
  FROM scheduler.secrets s WHERE s.key_id <> %(key_id)s::text ORDER BY s.name FOR UPDATE

-- name: reseal
-- A value → the same value under another key.
UPDATE scheduler.secrets s SET key_id = %(key_id)s::text, nonce = %(nonce)s::bytea, ciphertext = %(ciphertext)s::bytea
 WHERE s.name = %(name)s::text AND s.key_id = %(old_key_id)s::text

-- name: remove
-- A value → ∅.
DELETE FROM scheduler.secrets s WHERE s.name = %(name)s::text

-- name: forget_job
-- A name among the jobs that may use a secret → another one; the list never gets empty, which would be every job.
UPDATE scheduler.secrets s SET jobs = array_replace(s.jobs, %(name)s::text, %(deleted)s::text) WHERE %(name)s::text = ANY(s.jobs)
