-- migrate:up
-- Attempts that PostgreSQL holds for an executor whose heartbeats do not name them, or name them as quarantined (docs/fencing.md 3.5).
-- Any coordinator writes here with a heartbeat; the leader resolves what stays.
CREATE TABLE scheduler.unresolved_attempts (
    run_id bigint NOT NULL,
    token bigint NOT NULL,
    incarnation uuid NOT NULL,
    -- True: the executor has ended it, and its outcome was refused. False: the executor does not name it.
    quarantined boolean NOT NULL,
    -- Heartbeats in a row that said so.
    heartbeats integer NOT NULL DEFAULT 1,
    first_at timestamptz NOT NULL DEFAULT now(),
    -- Why the outcome was refused.
    message text NOT NULL DEFAULT '',
    PRIMARY KEY (run_id, token)
);
CREATE INDEX unresolved_attempts_incarnation ON scheduler.unresolved_attempts (incarnation);

-- migrate:down
DROP TABLE scheduler.unresolved_attempts;
