-- migrate:up
-- What the last verification of the audit found: the alert outlives the leader that found it.
CREATE TABLE scheduler.audit_verdict (
    id integer PRIMARY KEY DEFAULT 1 CHECK (id = 1),
    problems bigint NOT NULL CHECK (problems >= 0),
    at timestamptz NOT NULL DEFAULT now()
);

-- migrate:down
DROP TABLE scheduler.audit_verdict;
