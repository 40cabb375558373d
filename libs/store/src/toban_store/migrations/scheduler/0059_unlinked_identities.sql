-- migrate:up
-- Subjects that an administrator unlinked from their account: no sign-in makes a new one for them.
SET LOCAL lock_timeout = '10s';
CREATE TABLE scheduler.unlinked_identities (
    issuer text NOT NULL,
    subject text NOT NULL CHECK (length(subject) BETWEEN 1 AND 255),
    user_name text NOT NULL,
    unlinked_at timestamptz NOT NULL DEFAULT now(),
    unlinked_by text NOT NULL,
    PRIMARY KEY (issuer, subject)
);

-- migrate:down
DROP TABLE scheduler.unlinked_identities;
