-- name: lock
-- Serialises changes of accounts, groups and rules: each is checked against all others.
SELECT pg_advisory_xact_lock(hashtext('scheduler.accounts'))

-- name: people
-- Accounts with each of their rules and those of their groups; one row without a rule for an account that has none. `name` '' = all.
SELECT u.name AS person, u.enabled, u.password_hash IS NOT NULL AS has_password,
       u.password_hash IS NOT NULL OR EXISTS (SELECT 1 FROM scheduler.user_identities i WHERE i.user_id = u.id) AS signs_in, r.id AS rule_id, r.effect, r.role, r.job, r.labels, r.scope, r.scope_id,
       CASE WHEN r.user_id IS NULL THEN 'group ' || r.group_name ELSE 'user ' || u.name END AS origin
  FROM scheduler.users u
  LEFT JOIN LATERAL (
    SELECT o.*, '' AS group_name FROM scheduler.access_rules o WHERE o.user_id = u.id
     UNION ALL
    SELECT o.*, g.name FROM scheduler.group_members m JOIN scheduler.user_groups g ON g.id = m.group_id
                       JOIN scheduler.access_rules o ON o.group_id = g.id
     WHERE m.user_id = u.id) r ON true
 WHERE %(name)s::text = '' OR u.name = %(name)s::text
 ORDER BY u.name, r.id

-- name: users_page
-- Accounts after a name, with their groups.
SELECT u.name, u.display_name, u.enabled, u.password_hash IS NOT NULL AS has_password, u.created_at, u.created_by,
       ARRAY(SELECT g.name FROM scheduler.group_members m JOIN scheduler.user_groups g ON g.id = m.group_id WHERE m.user_id = u.id ORDER BY 1) AS groups,
       (SELECT max(s.last_used_at) FROM scheduler.user_sessions s WHERE s.user_id = u.id) AS last_seen_at
  FROM scheduler.users u
 WHERE u.name > %(after)s::text
 ORDER BY u.name LIMIT %(limit)s::integer

-- name: insert_user
-- A new account, unless there is one of that name.
INSERT INTO scheduler.users (name, display_name, password_hash, created_by, password_changed_at)
VALUES (%(name)s::text, %(display_name)s::text, %(password_hash)s::text, %(actor)s::text,
        CASE WHEN %(password_hash)s::text IS NOT NULL THEN now() END)
ON CONFLICT (name) DO NOTHING

-- name: set_enabled
-- Enabled ↔ disabled.
UPDATE scheduler.users SET enabled = %(enabled)s::boolean WHERE name = %(name)s::text AND enabled <> %(enabled)s::boolean

-- name: set_password
-- A new password.
UPDATE scheduler.users SET password_hash = %(password_hash)s::text, password_changed_at = now() WHERE name = %(name)s::text

-- name: change_password
-- Another password of an enabled account, unless it was changed meanwhile.
UPDATE scheduler.users SET password_hash = %(password_hash)s::text, password_changed_at = now()
 WHERE name = %(name)s::text AND enabled AND password_hash = %(before)s::text

-- name: rehash
-- The same password with present parameters, unless it was changed meanwhile.
UPDATE scheduler.users SET password_hash = %(password_hash)s::text WHERE name = %(name)s::text AND password_hash = %(before)s::text

-- name: delete_user
-- Removes an account with its rules, sessions and tokens.
DELETE FROM scheduler.users WHERE name = %(name)s::text

-- name: credentials
-- What a sign-in is compared with, and whether the account signed in from this address lately.
SELECT u.password_hash, u.enabled,
       EXISTS (SELECT 1 FROM scheduler.user_sessions s
                WHERE s.user_id = u.id AND s.address = %(address)s::text
                  AND s.created_at > now() - make_interval(secs => %(known_seconds)s::double precision)) AS known
  FROM scheduler.users u WHERE u.name = %(name)s::text

-- name: groups
-- Groups with their members.
SELECT g.name, ARRAY(SELECT u.name FROM scheduler.group_members m JOIN scheduler.users u ON u.id = m.user_id WHERE m.group_id = g.id ORDER BY 1) AS members
  FROM scheduler.user_groups g ORDER BY g.name LIMIT 1000

-- name: insert_group
-- A new group, unless there is one of that name.
INSERT INTO scheduler.user_groups (name, created_by) VALUES (%(name)s::text, %(actor)s::text) ON CONFLICT (name) DO NOTHING

-- name: delete_group
-- Removes a group with its rules.
DELETE FROM scheduler.user_groups WHERE name = %(name)s::text

-- name: join_group
-- A member more; one from an OpenID provider becomes one of ours.
INSERT INTO scheduler.group_members (group_id, user_id)
SELECT g.id, u.id FROM scheduler.user_groups g, scheduler.users u WHERE g.name = %(group)s::text AND u.name = %(user)s::text
ON CONFLICT (group_id, user_id) DO UPDATE SET from_provider = false WHERE group_members.from_provider

-- name: leave_group
-- A member less.
DELETE FROM scheduler.group_members m USING scheduler.user_groups g, scheduler.users u
 WHERE m.group_id = g.id AND m.user_id = u.id AND g.name = %(group)s::text AND u.name = %(user)s::text

-- name: insert_rule
-- A rule of a user or of a group; no row when there is none of that name.
INSERT INTO scheduler.access_rules (user_id, group_id, effect, role, job, labels, scope, scope_id, created_by)
SELECT o.user_id, o.group_id, %(effect)s::text, %(role)s::text, %(job)s::text, %(labels)s::jsonb, %(scope)s::text, %(scope_id)s::text, %(actor)s::text
  FROM (SELECT u.id AS user_id, NULL::bigint AS group_id FROM scheduler.users u WHERE u.name = %(user)s::text
         UNION ALL
        SELECT NULL, g.id FROM scheduler.user_groups g WHERE g.name = %(group)s::text) o
RETURNING id

-- name: delete_rule
-- Removes a rule and answers what it was.
DELETE FROM scheduler.access_rules r WHERE r.id = %(id)s::bigint
RETURNING r.effect, r.role, r.job, r.labels, r.scope, r.scope_id,
          COALESCE('user ' || (SELECT u.name FROM scheduler.users u WHERE u.id = r.user_id),
                   'group ' || (SELECT g.name FROM scheduler.user_groups g WHERE g.id = r.group_id)) AS origin

-- name: rules
-- All rules, by id.
SELECT r.id, r.effect, r.role, r.job, r.labels, r.scope, r.scope_id, r.created_at, r.created_by, coalesce(u.name, '') AS user, coalesce(g.name, '') AS group
  FROM scheduler.access_rules r LEFT JOIN scheduler.users u ON u.id = r.user_id LEFT JOIN scheduler.user_groups g ON g.id = r.group_id
 WHERE (%(user)s::text = '' OR u.name = %(user)s::text) AND (%(group)s::text = '' OR g.name = %(group)s::text)
 ORDER BY r.id LIMIT 1000

-- name: put_link
-- The newest one-time link replaces those before.
INSERT INTO scheduler.bootstrap_link (id, secret_hash, ends_at) VALUES (1, %(secret_hash)s::bytea, now() + make_interval(secs => %(seconds)s::double precision))
ON CONFLICT (id) DO UPDATE SET secret_hash = excluded.secret_hash, created_at = now(), ends_at = excluded.ends_at
RETURNING ends_at

-- name: take_link
-- The link is used: good once, until its end.
DELETE FROM scheduler.bootstrap_link WHERE secret_hash = %(secret_hash)s::bytea AND ends_at > now()
