-- migrate:up
-- Lists of runs by state, executor, origin, scope and label, alone and with a job. Each index is read from the newest run downward, so a page
-- costs what it shows. Runs that SUCCEEDED are the most: they are in no index by state, which a list of them does not need.
SET LOCAL lock_timeout = '60s';
CREATE INDEX runs_history_state ON scheduler.runs_history (state, id DESC)
    INCLUDE (finished_at, created_at, scheduled_for, assigned_worker_id, origin) WHERE state <> 'SUCCEEDED';
CREATE INDEX runs_history_job_state ON scheduler.runs_history (job_name, state, id DESC)
    INCLUDE (finished_at, created_at, scheduled_for, assigned_worker_id, origin) WHERE state <> 'SUCCEEDED';
CREATE INDEX runs_history_executor ON scheduler.runs_history (assigned_worker_id, id DESC) WHERE assigned_worker_id IS NOT NULL;
CREATE INDEX runs_history_origin ON scheduler.runs_history (origin, id DESC);
CREATE INDEX runs_history_scope ON scheduler.runs_history (scope, scope_id, id DESC) WHERE scope <> 'system';

-- What else a list of one job's runs is narrowed to is read from the index of the job itself.
DROP INDEX scheduler.runs_history_job;
CREATE INDEX runs_history_job ON scheduler.runs_history (job_name, id DESC)
    INCLUDE (finished_at, created_at, scheduled_for, state, assigned_worker_id, origin);

CREATE INDEX job_definitions_labels ON scheduler.job_definitions USING gin ((spec -> 'labels') jsonb_path_ops);

-- migrate:down
DROP INDEX scheduler.job_definitions_labels;
DROP INDEX scheduler.runs_history_job;
CREATE INDEX runs_history_job ON scheduler.runs_history (job_name, id DESC);
DROP INDEX scheduler.runs_history_state, scheduler.runs_history_job_state, scheduler.runs_history_executor, scheduler.runs_history_origin,
    scheduler.runs_history_scope;
