-- name: add
-- ∅ → an invite.
INSERT INTO scheduler.executor_invites (secret_hash, executor_group, uses, reason, created_by, ends_at)
VALUES (%(secret_hash)s::bytea, %(group)s::text, %(uses)s::int, %(reason)s::text, %(actor)s::text,
        now() + make_interval(secs => %(seconds)s::double precision))
RETURNING id

-- name: invites
-- The newest first; only the one with this id when it is not 0.
SELECT i.id, i.executor_group AS "group", i.uses, i.used, i.created_at, i.created_by, i.ends_at, i.reason, i.last_machine, i.last_used_at,
       CASE WHEN i.used = i.uses THEN 'used' WHEN i.ends_at <= now() THEN 'ended' ELSE 'good' END AS status
  FROM scheduler.executor_invites i
 WHERE %(id)s::bigint = 0 OR i.id = %(id)s::bigint
 ORDER BY i.id DESC LIMIT 1000

-- name: find
-- The invite with this token, while it is good.
SELECT i.id, i.executor_group AS "group" FROM scheduler.executor_invites i
 WHERE i.secret_hash = %(secret_hash)s::bytea AND i.ends_at > now() AND i.used < i.uses

-- name: take
-- A good invite → one use less; no row when another machine has had the last one.
UPDATE scheduler.executor_invites i
   SET used = i.used + 1, last_machine = %(machine)s::text, last_used_at = now()
 WHERE i.id = %(id)s::bigint AND i.ends_at > now() AND i.used < i.uses

-- name: remove
-- An invite → ∅.
DELETE FROM scheduler.executor_invites i WHERE i.id = %(id)s::bigint RETURNING i.executor_group AS "group"

-- name: forget
-- Those that are over for long: the audit log has them.
DELETE FROM scheduler.executor_invites i WHERE i.ends_at < now() - interval '30 days'
