-- migrate:up
-- Secrets of jobs, encrypted by coordinators with AES-256-GCM. The keys are in a file that only coordinators have; `key_id` says which one.
CREATE TABLE scheduler.secrets (
    name text PRIMARY KEY CHECK (name ~ '^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?$'),
    key_id text NOT NULL CHECK (key_id ~ '^[0-9a-f]{16}$'),
    nonce bytea NOT NULL CHECK (octet_length(nonce) = 12),
    -- The value, and a tag of 16 bytes.
    ciphertext bytea NOT NULL CHECK (octet_length(ciphertext) BETWEEN 17 AND 16400),
    -- Jobs that may use it; empty = all.
    jobs text[] NOT NULL DEFAULT '{}',
    version bigint NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    updated_by text NOT NULL
);

-- migrate:down
DROP TABLE scheduler.secrets;
