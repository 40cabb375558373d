-- migrate:up
-- How often an attempt was frozen and thawed (odd: it is frozen now), and for how many seconds in all: that time counts in no timeout.
SET LOCAL lock_timeout = '10s';
ALTER TABLE scheduler.job_attempts
    ADD COLUMN freeze_turns integer NOT NULL DEFAULT 0 CHECK (freeze_turns >= 0),
    ADD COLUMN frozen_seconds double precision NOT NULL DEFAULT 0 CHECK (frozen_seconds >= 0);

-- migrate:down
ALTER TABLE scheduler.job_attempts DROP COLUMN freeze_turns, DROP COLUMN frozen_seconds;
