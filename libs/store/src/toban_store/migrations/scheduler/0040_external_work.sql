-- migrate:up
-- Steps that external workers do (docs/external-workers.md): offers, claims and their locks; and jobs that go on after a dispatch.
SET LOCAL lock_timeout = '10s';
ALTER TABLE scheduler.runs_live
    -- Of the external step with which the run goes on, or that is offered; NULL = that step runs on an executor.
    ADD COLUMN worker_type text,
    -- The claim: its counter grows with each extension, and the leader ends the lock when it stands still (docs/fencing.md 3.5).
    ADD COLUMN lock_ttl_ms integer CHECK (lock_ttl_ms > 0),
    ADD COLUMN lock_seq bigint NOT NULL DEFAULT 0,
    ADD COLUMN claimed_at timestamptz,
    -- When the timeout of the claimed step ends; NULL = it has none.
    ADD COLUMN claim_deadline timestamptz,
    -- Until when a canceled claim may be extended; NULL = the worker is not told, because its step is not cancelable.
    ADD COLUMN cancel_until timestamptz,
    -- The step with which the run goes on when this dispatch has succeeded; NULL = the run has then succeeded.
    ADD COLUMN next_step integer CHECK (next_step > 0),
    -- While it waits for its next dispatch: the token of the last one, under which it keeps what it takes of limits.
    ADD COLUMN kept_token bigint,
    ADD CONSTRAINT runs_live_offered_token CHECK (state <> 'WAITING_WORKER' OR (token IS NOT NULL AND worker_type IS NOT NULL)) NOT VALID,
    ADD CONSTRAINT runs_live_claim CHECK (locked_by IS NULL OR (lock_ttl_ms IS NOT NULL AND locked_until IS NOT NULL)) NOT VALID;

-- Attempts at external workers have no executor. `worker` is the name that the worker gave.
ALTER TABLE scheduler.job_attempts
    ALTER COLUMN incarnation DROP NOT NULL,
    ALTER COLUMN worker_id DROP NOT NULL,
    ADD COLUMN worker text;

-- Runs that wait to be offered; offers in the order of the queue; and claims.
CREATE INDEX runs_live_to_offer ON scheduler.runs_live ((priority * 2 - catch_up::integer) DESC, scope, scope_id, scheduled_for, id)
    WHERE state = 'PENDING' AND worker_type IS NOT NULL;
CREATE INDEX runs_live_offers ON scheduler.runs_live (worker_type, (priority * 2 - catch_up::integer) DESC, scope, scope_id, scheduled_for, id)
    WHERE state = 'WAITING_WORKER' AND locked_by IS NULL;
CREATE INDEX runs_live_locked ON scheduler.runs_live (id) WHERE locked_by IS NOT NULL;

-- migrate:down
DROP INDEX scheduler.runs_live_to_offer, scheduler.runs_live_offers, scheduler.runs_live_locked;
UPDATE scheduler.runs_live SET state = 'PENDING', token = NULL, log_day = NULL, leader_epoch = NULL, dispatched_at = NULL, locked_by = NULL,
       locked_until = NULL WHERE state = 'WAITING_WORKER';
ALTER TABLE scheduler.runs_live DROP CONSTRAINT runs_live_offered_token, DROP CONSTRAINT runs_live_claim, DROP COLUMN worker_type,
    DROP COLUMN lock_ttl_ms, DROP COLUMN lock_seq, DROP COLUMN claimed_at, DROP COLUMN claim_deadline, DROP COLUMN cancel_until,
    DROP COLUMN next_step, DROP COLUMN kept_token;
DELETE FROM scheduler.job_attempts WHERE incarnation IS NULL;
ALTER TABLE scheduler.job_attempts DROP COLUMN worker, ALTER COLUMN incarnation SET NOT NULL, ALTER COLUMN worker_id SET NOT NULL;
