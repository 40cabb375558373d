-- migrate:up
-- Certificates that machines got by joining and by renewal, and which was renewed from which (docs/joining.md).
SET LOCAL lock_timeout = '10s';

CREATE TABLE scheduler.executor_certificates (
    serial         text PRIMARY KEY CHECK (serial ~ '^[0-9a-f]{1,40}$'),
    parent         text,
    executor_group text NOT NULL,
    invite         bigint,
    machine        text NOT NULL DEFAULT '',
    signed_at      timestamptz NOT NULL DEFAULT now(),
    ends_at        timestamptz NOT NULL,
    CHECK (parent <> serial)
);
CREATE INDEX executor_certificates_parent ON scheduler.executor_certificates (parent);

-- An invite ends with its group.
DELETE FROM scheduler.executor_invites i
 WHERE NOT EXISTS (SELECT 1 FROM scheduler.executor_groups g WHERE g.name = i.executor_group);
ALTER TABLE scheduler.executor_invites
    ADD CONSTRAINT executor_invites_group FOREIGN KEY (executor_group) REFERENCES scheduler.executor_groups ON DELETE CASCADE;

-- migrate:down
ALTER TABLE scheduler.executor_invites DROP CONSTRAINT executor_invites_group;
DROP TABLE scheduler.executor_certificates;
