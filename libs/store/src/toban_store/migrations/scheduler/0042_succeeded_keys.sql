-- migrate:up
-- Dedupe keys of jobs with `repeatable: false` of which a run has SUCCEEDED: no other run of such a key starts, also when the history of that
-- run is gone. Written by the statement that ends runs; `concurrency_group` begins with "once:".
CREATE TABLE scheduler.succeeded_keys (
    definition_id bigint NOT NULL REFERENCES scheduler.job_definitions ON DELETE CASCADE,
    concurrency_group text NOT NULL,
    run_id bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (definition_id, concurrency_group)
);

-- migrate:down
DROP TABLE scheduler.succeeded_keys;
