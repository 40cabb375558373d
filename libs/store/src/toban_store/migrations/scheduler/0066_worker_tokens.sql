-- migrate:up
-- API tokens for external workers: scope worker, with the worker_type of the steps as scope_id. They are for nothing else, so for no job or label.
SET LOCAL lock_timeout = '10s';
ALTER TABLE scheduler.api_tokens
    DROP CONSTRAINT api_tokens_scope_check,
    ADD CONSTRAINT api_tokens_scope_check CHECK (scope IN ('', 'system', 'account', 'user', 'worker')),
    ADD CONSTRAINT api_tokens_worker CHECK (
        scope <> 'worker' OR (scope_id <> '' AND role = 'operator' AND job = '' AND labels = '{}'));

-- migrate:down
DELETE FROM scheduler.api_tokens WHERE scope = 'worker';
ALTER TABLE scheduler.api_tokens
    DROP CONSTRAINT api_tokens_worker,
    DROP CONSTRAINT api_tokens_scope_check,
    ADD CONSTRAINT api_tokens_scope_check CHECK (scope IN ('', 'system', 'account', 'user'));
