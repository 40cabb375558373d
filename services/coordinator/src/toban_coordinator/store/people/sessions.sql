-- name: insert_session
-- A session of an enabled account whose password is still the one that was checked: the lock waits for a change of it that is under way.
INSERT INTO scheduler.user_sessions (secret_hash, user_id, address, user_agent, ends_at)
SELECT %(secret_hash)s::bytea, u.id, %(address)s::text, %(user_agent)s::text, now() + make_interval(secs => %(seconds)s::double precision)
  FROM (SELECT id FROM scheduler.users WHERE name = %(user)s::text AND enabled AND password_hash = %(password_hash)s::text FOR SHARE) u
RETURNING ends_at

-- name: session
-- Whose session it is, and PostgreSQL's time.
SELECT u.name, u.enabled, s.last_used_at, s.ends_at, s.revoked_at IS NOT NULL AS revoked, now() AS server_time
  FROM scheduler.user_sessions s JOIN scheduler.users u ON u.id = s.user_id
 WHERE s.secret_hash = %(secret_hash)s::bytea

-- name: touch_session
-- Its last use; written at most once in some seconds.
UPDATE scheduler.user_sessions SET last_used_at = now()
 WHERE secret_hash = %(secret_hash)s::bytea AND revoked_at IS NULL AND last_used_at < now() - make_interval(secs => %(seconds)s::double precision)

-- name: revoke_session
-- good → revoked.
UPDATE scheduler.user_sessions SET revoked_at = now() WHERE secret_hash = %(secret_hash)s::bytea AND revoked_at IS NULL

-- name: revoke_sessions
-- good → revoked, every session of an account.
UPDATE scheduler.user_sessions s SET revoked_at = now()
  FROM scheduler.users u WHERE u.id = s.user_id AND u.name = %(user)s::text AND s.revoked_at IS NULL AND s.ends_at > now()

-- name: good_sessions
-- Sessions of an account that are good.
SELECT s.id, s.address, s.user_agent, s.created_at, s.last_used_at, s.ends_at, s.secret_hash = %(current)s::bytea AS current
  FROM scheduler.user_sessions s JOIN scheduler.users u ON u.id = s.user_id
 WHERE u.name = %(user)s::text AND s.revoked_at IS NULL AND s.ends_at > now()
   AND s.last_used_at > now() - make_interval(secs => %(seconds)s::double precision)
 ORDER BY s.created_at DESC LIMIT 200

-- name: end_session
-- good → revoked, one session of an account.
UPDATE scheduler.user_sessions s SET revoked_at = now()
  FROM scheduler.users u WHERE s.id = %(id)s::bigint AND u.id = s.user_id AND u.name = %(user)s::text AND s.revoked_at IS NULL

-- name: count_tokens
-- How many tokens of an account are good.
SELECT count(*) AS good FROM scheduler.api_tokens k JOIN scheduler.users u ON u.id = k.user_id
 WHERE u.name = %(user)s::text AND k.revoked_at IS NULL AND k.ends_at > now()

-- name: insert_token
-- An API token of an account.
INSERT INTO scheduler.api_tokens (user_id, name, secret_hash, role, job, labels, scope, scope_id, created_by, ends_at)
SELECT u.id, %(name)s::text, %(secret_hash)s::bytea, %(role)s::text, %(job)s::text, %(labels)s::jsonb, %(scope)s::text, %(scope_id)s::text, %(actor)s::text,
       least(now() + make_interval(secs => %(seconds)s::double precision), (SELECT m.ends_at FROM scheduler.api_tokens m WHERE m.id = %(maker)s::bigint))
  FROM scheduler.users u WHERE u.name = %(user)s::text
RETURNING id, ends_at

-- name: token
-- Whose token it is, and the most that it may do.
SELECT k.id, k.role, k.job, k.labels, k.scope, k.scope_id, u.name, u.enabled, k.revoked_at IS NULL AND k.ends_at > now() AS good
  FROM scheduler.api_tokens k JOIN scheduler.users u ON u.id = k.user_id
 WHERE k.secret_hash = %(secret_hash)s::bytea

-- name: touch_token
-- Its last use; written at most once in some seconds.
UPDATE scheduler.api_tokens SET last_used_at = now(), last_used_from = %(address)s::text
 WHERE id = %(id)s::bigint AND (last_used_at IS NULL OR last_used_at < now() - make_interval(secs => %(seconds)s::double precision))

-- name: revoke_token
-- good → revoked.
UPDATE scheduler.api_tokens k SET revoked_at = now() FROM scheduler.users u
 WHERE k.id = %(id)s::bigint AND u.id = k.user_id AND k.revoked_at IS NULL AND (%(user)s::text = '' OR u.name = %(user)s::text)
RETURNING k.name, u.name AS user

-- name: tokens
-- Tokens of one account or of all, by id.
SELECT k.id, k.name, u.name AS user, k.role, k.job, k.labels, k.scope, k.scope_id, k.created_at, k.created_by, k.ends_at, k.last_used_at, k.last_used_from,
       k.revoked_at IS NOT NULL AS revoked
  FROM scheduler.api_tokens k JOIN scheduler.users u ON u.id = k.user_id
 WHERE (%(user)s::text = '' OR u.name = %(user)s::text)
 ORDER BY k.id DESC LIMIT 1000

-- name: failures_rows
-- Rows for the keys of a sign-in, so that they can be locked.
INSERT INTO scheduler.sign_in_failures (key) SELECT k FROM unnest(%(keys)s::text[]) AS k ORDER BY k ON CONFLICT (key) DO NOTHING

-- name: failures
-- Locks the failures under some keys, in the order of keys.
SELECT f.key, f.failures, f.last_at, f.blocked_until, clock_timestamp() AS server_time
  FROM scheduler.sign_in_failures f WHERE f.key = ANY(%(keys)s::text[]) ORDER BY f.key FOR UPDATE

-- name: seen_failures
-- The failures under a key, and PostgreSQL's time.
SELECT f.failures, f.last_at, f.blocked_until, clock_timestamp() AS server_time
  FROM (SELECT %(key)s::text AS key) k LEFT JOIN scheduler.sign_in_failures f ON f.key = k.key

-- name: forget_failures
-- failures under a key → ∅.
DELETE FROM scheduler.sign_in_failures WHERE key = %(key)s::text

-- name: put_failures
-- New counts under some keys.
UPDATE scheduler.sign_in_failures f SET failures = i.failures, last_at = i.last_at, blocked_until = i.blocked_until
  FROM unnest(%(keys)s::text[], %(counts)s::integer[], %(last)s::timestamptz[], %(until)s::timestamptz[]) AS i(key, failures, last_at, blocked_until)
 WHERE f.key = i.key

-- name: forgive
-- A sign-in that succeeded: its own failures are forgotten, and the address has one less, as this attempt was counted before its check.
WITH own AS (DELETE FROM scheduler.sign_in_failures WHERE key = ANY(%(own)s::text[]))
UPDATE scheduler.sign_in_failures SET failures = greatest(failures - 1, 0), blocked_until = now() WHERE key = %(address)s::text
