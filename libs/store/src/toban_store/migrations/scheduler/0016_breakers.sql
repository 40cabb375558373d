-- migrate:up
-- Breakers, health signals of programs, and runs that ignore limits (docs/limits.md).
SET LOCAL lock_timeout = '10s';

-- One row a job (job:NAME) or pool (pool:NAME) whose breaker was open once. open: nothing starts; half_open: one run probes. `since` is when it
-- got this state: runs that ended before count no more.
CREATE TABLE scheduler.breakers (
    name text PRIMARY KEY CHECK (name ~ '^(job|pool):.' AND length(name) <= 400),
    state text NOT NULL CHECK (state IN ('open', 'half_open', 'closed')),
    -- An operator opened it: it stays open until an operator closes it.
    by_hand boolean NOT NULL DEFAULT false CHECK (state <> 'half_open' OR NOT by_hand),
    since timestamptz NOT NULL DEFAULT now(),
    reason text NOT NULL DEFAULT '',
    updated_by text NOT NULL DEFAULT ''
);

-- The last health signal for a limit: `factor` of it is left until `holds_until`, and 10 % of the whole more each minute after that.
CREATE TABLE scheduler.limit_signals (
    name text PRIMARY KEY CHECK (name ~ '^(job|pool):.' AND length(name) <= 400),
    level text NOT NULL CHECK (level IN ('ok', 'soft', 'hard')),
    factor double precision NOT NULL CHECK (factor > 0 AND factor <= 1),
    holds_until timestamptz NOT NULL,
    reason text NOT NULL DEFAULT '',
    updated_at timestamptz NOT NULL DEFAULT now(),
    updated_by text NOT NULL DEFAULT ''
);

-- Runs that start although a limit has no room, or a breaker is open; they count all the same.
CREATE TABLE scheduler.limit_overrides (run_id bigint PRIMARY KEY);

-- migrate:down
DROP TABLE scheduler.limit_overrides, scheduler.limit_signals, scheduler.breakers;
