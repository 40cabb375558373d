-- migrate:up
-- When an order had the value of a secret last; NULL = none since this column is here.
SET LOCAL lock_timeout = '10s';

ALTER TABLE scheduler.secrets ADD COLUMN last_used_at timestamptz;

-- migrate:down
ALTER TABLE scheduler.secrets DROP COLUMN last_used_at;
