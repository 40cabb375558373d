-- migrate:up
-- People: accounts, groups, rules, sessions, API tokens, the one-time link for the first administrator, and failed sign-ins. Secrets are stored as
-- hashes only: Argon2id of a password, SHA-256 of what is random.
CREATE TABLE scheduler.users (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE CHECK (name ~ '^[a-z0-9][a-z0-9._@-]{0,63}$'),
    display_name text NOT NULL DEFAULT '',
    -- NULL: this account cannot sign in with a password.
    password_hash text,
    enabled boolean NOT NULL DEFAULT true,
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text NOT NULL DEFAULT '',
    password_changed_at timestamptz
);

CREATE TABLE scheduler.user_groups (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE CHECK (name ~ '^[a-z0-9][a-z0-9._@-]{0,63}$'),
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text NOT NULL DEFAULT ''
);

CREATE TABLE scheduler.group_members (
    group_id bigint NOT NULL REFERENCES scheduler.user_groups ON DELETE CASCADE,
    user_id bigint NOT NULL REFERENCES scheduler.users ON DELETE CASCADE,
    PRIMARY KEY (group_id, user_id)
);
CREATE INDEX group_members_user ON scheduler.group_members (user_id);

-- A rule of a user or of a group, for the jobs that its selector fits; an empty selector is everything.
CREATE TABLE scheduler.access_rules (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id bigint REFERENCES scheduler.users ON DELETE CASCADE,
    group_id bigint REFERENCES scheduler.user_groups ON DELETE CASCADE,
    effect text NOT NULL CHECK (effect IN ('allow', 'deny')),
    role text NOT NULL CHECK (role IN ('viewer', 'operator', 'editor', 'admin')),
    job text NOT NULL DEFAULT '',
    labels jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(labels) = 'object'),
    scope text NOT NULL DEFAULT '' CHECK (scope IN ('', 'system', 'account', 'user')),
    scope_id text NOT NULL DEFAULT '' CHECK (scope_id = '' OR scope <> ''),
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text NOT NULL DEFAULT '',
    CHECK ((user_id IS NULL) <> (group_id IS NULL))
);
CREATE INDEX access_rules_user ON scheduler.access_rules (user_id) WHERE user_id IS NOT NULL;
CREATE INDEX access_rules_group ON scheduler.access_rules (group_id) WHERE group_id IS NOT NULL;

CREATE TABLE scheduler.user_sessions (
    secret_hash bytea PRIMARY KEY CHECK (octet_length(secret_hash) = 32),
    user_id bigint NOT NULL REFERENCES scheduler.users ON DELETE CASCADE,
    address text NOT NULL DEFAULT '',
    user_agent text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT now(),
    last_used_at timestamptz NOT NULL DEFAULT now(),
    -- Not renewed by use.
    ends_at timestamptz NOT NULL,
    revoked_at timestamptz
);
CREATE INDEX user_sessions_user ON scheduler.user_sessions (user_id, created_at DESC);
CREATE INDEX user_sessions_ends ON scheduler.user_sessions (ends_at);

CREATE TABLE scheduler.api_tokens (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id bigint NOT NULL REFERENCES scheduler.users ON DELETE CASCADE,
    name text NOT NULL,
    secret_hash bytea NOT NULL UNIQUE CHECK (octet_length(secret_hash) = 32),
    -- The most that the token may do, whatever its user may.
    role text NOT NULL CHECK (role IN ('viewer', 'operator', 'editor', 'admin')),
    job text NOT NULL DEFAULT '',
    labels jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(labels) = 'object'),
    scope text NOT NULL DEFAULT '' CHECK (scope IN ('', 'system', 'account', 'user')),
    scope_id text NOT NULL DEFAULT '' CHECK (scope_id = '' OR scope <> ''),
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text NOT NULL DEFAULT '',
    ends_at timestamptz NOT NULL,
    last_used_at timestamptz,
    last_used_from text NOT NULL DEFAULT '',
    revoked_at timestamptz
);
CREATE INDEX api_tokens_user ON scheduler.api_tokens (user_id);

-- The link for the first administrator: only the newest one is good, once, and only while no account can administer.
CREATE TABLE scheduler.bootstrap_link (
    id integer PRIMARY KEY DEFAULT 1 CHECK (id = 1),
    secret_hash bytea NOT NULL CHECK (octet_length(secret_hash) = 32),
    created_at timestamptz NOT NULL DEFAULT now(),
    ends_at timestamptz NOT NULL
);

-- Failed sign-ins of an account, of an address, and of one from the other. All coordinators see them, and a restart does not forget them.
CREATE TABLE scheduler.sign_in_failures (
    key text PRIMARY KEY,
    failures integer NOT NULL DEFAULT 0,
    last_at timestamptz NOT NULL DEFAULT now(),
    blocked_until timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);
CREATE INDEX sign_in_failures_last ON scheduler.sign_in_failures (last_at);

-- migrate:down
DROP TABLE scheduler.sign_in_failures, scheduler.bootstrap_link, scheduler.api_tokens, scheduler.user_sessions, scheduler.access_rules,
    scheduler.group_members, scheduler.user_groups, scheduler.users;
