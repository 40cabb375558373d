-- migrate:up
-- Concurrency limits, their deferred queue, and policies over groups of runs (docs/limits.md).
SET LOCAL lock_timeout = '10s';

ALTER TABLE scheduler.runs_live
    -- Runs of one definition with an equal group are subject to its policy together; NULL = the policy concerns the runs of one schedule, or none.
    ADD COLUMN concurrency_group text,
    -- Policy reject_same_scope: this run holds its group. One live run at most does.
    ADD COLUMN group_claimed boolean NOT NULL DEFAULT false,
    -- The limit that defers the run, or deferred it last until it is sent, and how much of it the run needs.
    ADD COLUMN deferred_on text,
    ADD COLUMN deferred_weight integer,
    ADD COLUMN deferred_at timestamptz,
    -- Since when a resumed run may take its slot.
    ADD COLUMN resumed_at timestamptz,
    -- When a deferred run has waited for too long; NULL = never.
    ADD COLUMN wait_until timestamptz,
    -- A missed slot that is caught up: runs whose time is now go first.
    ADD COLUMN catch_up boolean NOT NULL DEFAULT false,
    ADD CONSTRAINT runs_live_deferred_on CHECK (state <> 'DEFERRED' OR deferred_on IS NOT NULL) NOT VALID;
ALTER TABLE scheduler.runs_history
    ADD COLUMN concurrency_group text, ADD COLUMN group_claimed boolean NOT NULL DEFAULT false, ADD COLUMN deferred_on text,
    ADD COLUMN deferred_weight integer, ADD COLUMN deferred_at timestamptz, ADD COLUMN resumed_at timestamptz, ADD COLUMN wait_until timestamptz,
    ADD COLUMN catch_up boolean NOT NULL DEFAULT false;
DROP VIEW scheduler.job_runs;
-- The columns of the history: live runs have more.
DO $$ BEGIN
    EXECUTE (
        SELECT format('CREATE VIEW scheduler.job_runs AS SELECT %1$s FROM scheduler.runs_live UNION ALL SELECT %1$s FROM scheduler.runs_history',
                      string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum))
          FROM pg_attribute a WHERE a.attrelid = 'scheduler.runs_history'::regclass AND a.attnum > 0 AND NOT a.attisdropped);
END $$;

CREATE INDEX runs_live_group ON scheduler.runs_live (definition_id, concurrency_group, scheduled_for, id) WHERE concurrency_group IS NOT NULL;
CREATE UNIQUE INDEX runs_live_claimed ON scheduler.runs_live (definition_id, concurrency_group) WHERE group_claimed;
-- Runs that are deferred, and those that were resumed and not sent yet.
CREATE INDEX runs_live_deferred ON scheduler.runs_live (deferred_on, priority DESC, scope, scope_id, scheduled_for, id)
    WHERE deferred_on IS NOT NULL;
CREATE INDEX runs_live_wait_until ON scheduler.runs_live (wait_until) WHERE state = 'DEFERRED' AND wait_until IS NOT NULL;

-- What operators set: the limit of a job in place of its definition's (job:NAME), the size of a pool (pool:NAME), the weight of a scope
-- in the fair queue (scope:SCOPE/ID). 0 = no limit, -1 = nothing starts.
CREATE TABLE scheduler.limits (
    name text PRIMARY KEY CHECK (name ~ '^(job|pool|scope):.' AND length(name) <= 400),
    value integer NOT NULL CHECK (value >= -1),
    reason text NOT NULL DEFAULT '',
    version bigint NOT NULL DEFAULT 1,
    updated_at timestamptz NOT NULL DEFAULT now(),
    updated_by text NOT NULL DEFAULT '',
    CHECK (name LIKE 'job:%' OR value >= 1 OR (name LIKE 'pool:%' AND value = -1))
);

-- Which dispatch takes how much of which limit. A row counts only while a live run has its token: what is used is always counted from live
-- runs, and a row that is left behind takes nothing. The leader deletes those.
CREATE TABLE scheduler.limit_holds (
    key text NOT NULL,
    run_id bigint NOT NULL,
    token bigint NOT NULL,
    weight integer NOT NULL CHECK (weight > 0),
    PRIMARY KEY (key, run_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

-- Starts of jobs with a start rate, as far back as their windows reach.
CREATE TABLE scheduler.limit_starts (
    key text NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    token bigint NOT NULL,
    PRIMARY KEY (key, at, token)
);

-- The leader reads which definitions have limits.
CREATE INDEX job_definitions_concurrency ON scheduler.job_definitions (id) WHERE spec ? 'concurrency';

-- migrate:down
DROP INDEX scheduler.job_definitions_concurrency;
DROP TABLE scheduler.limits, scheduler.limit_holds, scheduler.limit_starts;
UPDATE scheduler.runs_live SET state = 'PENDING' WHERE state = 'DEFERRED';
DROP VIEW scheduler.job_runs;
ALTER TABLE scheduler.runs_live DROP COLUMN concurrency_group, DROP COLUMN group_claimed, DROP COLUMN deferred_on, DROP COLUMN deferred_weight,
    DROP COLUMN deferred_at, DROP COLUMN resumed_at, DROP COLUMN wait_until, DROP COLUMN catch_up;
ALTER TABLE scheduler.runs_history DROP COLUMN concurrency_group, DROP COLUMN group_claimed, DROP COLUMN deferred_on, DROP COLUMN deferred_weight,
    DROP COLUMN deferred_at, DROP COLUMN resumed_at, DROP COLUMN wait_until, DROP COLUMN catch_up;
-- The columns of the history: live runs have more.
DO $$ BEGIN
    EXECUTE (
        SELECT format('CREATE VIEW scheduler.job_runs AS SELECT %1$s FROM scheduler.runs_live UNION ALL SELECT %1$s FROM scheduler.runs_history',
                      string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum))
          FROM pg_attribute a WHERE a.attrelid = 'scheduler.runs_history'::regclass AND a.attnum > 0 AND NOT a.attisdropped);
END $$;
