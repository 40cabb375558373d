-- migrate:up
-- Tokens with which machines become executors (docs/joining.md): only their hash is here.
CREATE TABLE scheduler.executor_invites (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    secret_hash    bytea NOT NULL UNIQUE CHECK (octet_length(secret_hash) = 32),
    executor_group text NOT NULL,
    uses           integer NOT NULL CHECK (uses BETWEEN 1 AND 1000),
    used           integer NOT NULL DEFAULT 0 CHECK (used BETWEEN 0 AND uses),
    reason         text NOT NULL DEFAULT '',
    created_at     timestamptz NOT NULL DEFAULT now(),
    created_by     text NOT NULL,
    ends_at        timestamptz NOT NULL,
    last_machine   text NOT NULL DEFAULT '',
    last_used_at   timestamptz,
    CHECK ((last_used_at IS NULL) = (used = 0))
);

-- migrate:down
DROP TABLE scheduler.executor_invites;
