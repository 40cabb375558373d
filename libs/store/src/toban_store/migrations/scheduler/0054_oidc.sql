-- migrate:up
-- Sign-in with an OpenID provider: which account a subject of an issuer is, what its groups there give it here, and nonces that were used.
SET LOCAL lock_timeout = '10s';
CREATE TABLE scheduler.user_identities (
    issuer text NOT NULL,
    subject text NOT NULL CHECK (length(subject) BETWEEN 1 AND 255),
    user_id bigint NOT NULL REFERENCES scheduler.users ON DELETE CASCADE,
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text NOT NULL DEFAULT '',
    last_used_at timestamptz,
    PRIMARY KEY (issuer, subject),
    UNIQUE (user_id, issuer)
);

-- Replaced at each sign-in, while the rules and memberships that administrators make stay.
ALTER TABLE scheduler.access_rules ADD COLUMN from_provider boolean NOT NULL DEFAULT false;
ALTER TABLE scheduler.group_members ADD COLUMN from_provider boolean NOT NULL DEFAULT false;

-- Coordinators sign the nonces of sign-ins with it.
CREATE TABLE scheduler.oidc_nonce_key (
    id integer PRIMARY KEY DEFAULT 1 CHECK (id = 1),
    key bytea NOT NULL CHECK (octet_length(key) = 32)
);
INSERT INTO scheduler.oidc_nonce_key (key) SELECT sha256(convert_to(string_agg(gen_random_uuid()::text, ''), 'UTF8')) FROM generate_series(1, 4);

-- Nonces of ID tokens that were used; kept while the nonce would be good.
CREATE TABLE scheduler.oidc_nonces_used (
    nonce_hash bytea PRIMARY KEY CHECK (octet_length(nonce_hash) = 32),
    ends_at timestamptz NOT NULL
);
CREATE INDEX oidc_nonces_used_ends ON scheduler.oidc_nonces_used (ends_at);

-- migrate:down
DROP TABLE scheduler.oidc_nonces_used, scheduler.oidc_nonce_key;
DELETE FROM scheduler.access_rules WHERE from_provider;
DELETE FROM scheduler.group_members WHERE from_provider;
ALTER TABLE scheduler.group_members DROP COLUMN from_provider;
ALTER TABLE scheduler.access_rules DROP COLUMN from_provider;
DROP TABLE scheduler.user_identities;
