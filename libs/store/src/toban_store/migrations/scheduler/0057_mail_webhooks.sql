-- migrate:up
-- Mail as a form of webhooks.
SET LOCAL lock_timeout = '10s';
ALTER TABLE scheduler.webhook_targets
    DROP CONSTRAINT webhook_targets_form_check,
    ADD CONSTRAINT webhook_targets_form_check CHECK (form IN ('generic', 'slack', 'teams', 'smtp'));

-- migrate:down
-- A target that the older release cannot send to gets nothing.
UPDATE scheduler.webhook_targets SET enabled = false, form = 'generic' WHERE form = 'smtp';
ALTER TABLE scheduler.webhook_targets
    DROP CONSTRAINT webhook_targets_form_check,
    ADD CONSTRAINT webhook_targets_form_check CHECK (form IN ('generic', 'slack', 'teams'));
