-- name: nonce_key
-- What coordinators sign nonces with, and PostgreSQL's time.
SELECT key, now() AS server_time FROM scheduler.oidc_nonce_key

-- name: use_nonce
-- A nonce signs in once.
INSERT INTO scheduler.oidc_nonces_used (nonce_hash, ends_at) VALUES (%(nonce_hash)s::bytea, %(ends_at)s::timestamptz) ON CONFLICT (nonce_hash) DO NOTHING

-- name: forget_nonces
-- Nonces that are not good any more.
DELETE FROM scheduler.oidc_nonces_used WHERE nonce_hash IN
    (SELECT n.nonce_hash FROM scheduler.oidc_nonces_used n WHERE n.ends_at < now() ORDER BY n.ends_at LIMIT 100 FOR UPDATE SKIP LOCKED)

-- name: account_of
-- The account that a subject of an issuer is.
SELECT u.name, u.enabled FROM scheduler.user_identities i JOIN scheduler.users u ON u.id = i.user_id
 WHERE i.issuer = %(issuer)s::text AND i.subject = %(subject)s::text

-- name: name_taken
-- Whether there is an account of that name.
SELECT EXISTS (SELECT 1 FROM scheduler.users WHERE name = %(name)s::text) AS taken

-- name: link
-- A subject becomes an account, unless one of both has a partner at this issuer.
INSERT INTO scheduler.user_identities (issuer, subject, user_id, created_by)
SELECT %(issuer)s::text, %(subject)s::text, u.id, %(actor)s::text FROM scheduler.users u WHERE u.name = %(user)s::text
ON CONFLICT DO NOTHING

-- name: unlink
-- An account is not a subject of this issuer any more.
DELETE FROM scheduler.user_identities i USING scheduler.users u
 WHERE i.user_id = u.id AND u.name = %(user)s::text AND i.issuer = %(issuer)s::text
RETURNING i.subject

-- name: mark_unlinked
-- A subject gets no new account by itself.
INSERT INTO scheduler.unlinked_identities (issuer, subject, user_name, unlinked_by)
VALUES (%(issuer)s::text, %(subject)s::text, %(user)s::text, %(actor)s::text)
ON CONFLICT (issuer, subject) DO UPDATE SET user_name = EXCLUDED.user_name, unlinked_at = now(), unlinked_by = EXCLUDED.unlinked_by

-- name: forget_unlinked
-- A subject that is linked again.
DELETE FROM scheduler.unlinked_identities WHERE issuer = %(issuer)s::text AND subject = %(subject)s::text

-- name: unlinked
-- From which account a subject was unlinked.
SELECT user_name FROM scheduler.unlinked_identities WHERE issuer = %(issuer)s::text AND subject = %(subject)s::text

-- name: identities
-- Who accounts are at providers.
SELECT u.name, i.issuer, i.subject, i.created_at, i.created_by, i.last_used_at
  FROM scheduler.user_identities i JOIN scheduler.users u ON u.id = i.user_id
 WHERE u.name = ANY(%(users)s::text[]) ORDER BY u.name, i.issuer

-- name: linked
-- Enabled accounts that signed in with an issuer by the identity that they have now.
SELECT u.name FROM scheduler.user_identities i JOIN scheduler.users u ON u.id = i.user_id
 WHERE i.issuer = %(issuer)s::text AND u.enabled AND i.last_used_at IS NOT NULL

-- name: roles
-- Roles and groups that an account has from its provider.
SELECT ARRAY(SELECT r.role FROM scheduler.access_rules r WHERE r.user_id = u.id AND r.from_provider ORDER BY r.role COLLATE "C") AS roles,
       ARRAY(SELECT g.name FROM scheduler.group_members m JOIN scheduler.user_groups g ON g.id = m.group_id
              WHERE m.user_id = u.id AND m.from_provider ORDER BY g.name COLLATE "C") AS groups
  FROM scheduler.users u WHERE u.name = %(user)s::text

-- name: drop_roles
-- Roles from the provider that its groups do not give any more.
DELETE FROM scheduler.access_rules r USING scheduler.users u
 WHERE r.user_id = u.id AND u.name = %(user)s::text AND r.from_provider AND r.role <> ALL(%(roles)s::text[])

-- name: add_roles
-- Roles from the provider that the account does not have from it yet.
INSERT INTO scheduler.access_rules (user_id, effect, role, created_by, from_provider)
SELECT u.id, 'allow', x.role, %(actor)s::text, true FROM scheduler.users u, unnest(%(roles)s::text[]) AS x(role)
 WHERE u.name = %(user)s::text
   AND NOT EXISTS (SELECT 1 FROM scheduler.access_rules r WHERE r.user_id = u.id AND r.from_provider AND r.role = x.role)

-- name: make_groups
-- Groups that the configuration names and that are missing; they have no rules.
INSERT INTO scheduler.user_groups (name, created_by) SELECT x, %(actor)s::text FROM unnest(%(groups)s::text[]) AS x ON CONFLICT (name) DO NOTHING

-- name: leave_groups
-- Groups from the provider that the account is not in any more.
DELETE FROM scheduler.group_members m USING scheduler.user_groups g, scheduler.users u
 WHERE m.group_id = g.id AND m.user_id = u.id AND u.name = %(user)s::text AND m.from_provider AND g.name <> ALL(%(groups)s::text[])

-- name: join_groups
-- Groups from the provider; a membership that an administrator made stays theirs.
INSERT INTO scheduler.group_members (group_id, user_id, from_provider)
SELECT g.id, u.id, true FROM scheduler.user_groups g, scheduler.users u WHERE g.name = ANY(%(groups)s::text[]) AND u.name = %(user)s::text
ON CONFLICT DO NOTHING

-- name: touch
-- A subject signed in.
UPDATE scheduler.user_identities SET last_used_at = now() WHERE issuer = %(issuer)s::text AND subject = %(subject)s::text

-- name: insert_session
-- A session of an enabled account for a subject that is linked to it: the lock waits for a change of the account that is under way.
INSERT INTO scheduler.user_sessions (secret_hash, user_id, address, user_agent, ends_at)
SELECT %(secret_hash)s::bytea, u.id, %(address)s::text, %(user_agent)s::text, now() + make_interval(secs => %(seconds)s::double precision)
  FROM (SELECT o.id FROM scheduler.users o JOIN scheduler.user_identities i ON i.user_id = o.id
         WHERE i.issuer = %(issuer)s::text AND i.subject = %(subject)s::text AND o.enabled FOR SHARE) u
RETURNING ends_at
