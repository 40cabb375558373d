-- migrate:up
-- Outgoing webhooks: which ends of runs go to which target, and the outbox of what is to be sent, written by the statement that ends a run. URL and
-- secret of a target are in `secrets`, under the name that `secret` says.
CREATE TABLE scheduler.webhook_targets (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE CHECK (name ~ '^[a-z0-9]([a-z0-9._-]{0,53}[a-z0-9])?$'),
    -- Scheme, host and port of its URL.
    origin text NOT NULL,
    secret text NOT NULL,
    states text[] NOT NULL CHECK (cardinality(states) > 0),
    -- Empty = all.
    jobs text[] NOT NULL DEFAULT '{}',
    labels jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(labels) = 'object'),
    enabled boolean NOT NULL DEFAULT true,
    -- The breaker: tries in a row that failed, since when, and until when nothing is let through.
    failures integer NOT NULL DEFAULT 0,
    failing_since timestamptz,
    open_until timestamptz,
    last_error text NOT NULL DEFAULT '',
    version bigint NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    updated_by text NOT NULL
);

-- No reference to the target: its key lock would be one more lock of the statement that ends runs. Rows without a target go by age.
CREATE TABLE scheduler.webhook_deliveries (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    target_id bigint NOT NULL,
    event_id uuid NOT NULL DEFAULT gen_random_uuid(),
    type text NOT NULL,
    -- NULL = about no run.
    run_id bigint,
    state text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'delivered', 'failed')),
    attempts integer NOT NULL DEFAULT 0,
    -- When it is tried next; with a lease, when that ends.
    next_at timestamptz NOT NULL DEFAULT now(),
    lease uuid,
    created_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz,
    status integer,
    error text NOT NULL DEFAULT '',
    CHECK ((state = 'pending') = (ended_at IS NULL)),
    CHECK (state = 'pending' OR lease IS NULL)
);
CREATE INDEX webhook_deliveries_due ON scheduler.webhook_deliveries (target_id, next_at, id) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_order ON scheduler.webhook_deliveries (target_id, run_id, id) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_leased ON scheduler.webhook_deliveries (target_id, next_at) WHERE lease IS NOT NULL;
CREATE INDEX webhook_deliveries_failed ON scheduler.webhook_deliveries (target_id, id) WHERE state = 'failed';
CREATE INDEX webhook_deliveries_target ON scheduler.webhook_deliveries (target_id, id DESC);
CREATE INDEX webhook_deliveries_run ON scheduler.webhook_deliveries (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX webhook_deliveries_age ON scheduler.webhook_deliveries (created_at);

-- migrate:down
DROP TABLE scheduler.webhook_deliveries, scheduler.webhook_targets;
DELETE FROM scheduler.secrets WHERE jobs[1] LIKE 'webhook/%';
