-- migrate:up
-- Incoming webhooks: which messages become which events. The secrets of a hook are in `secrets`, under the name that `secret` says.
CREATE TABLE scheduler.hooks (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE CHECK (name ~ '^[a-z0-9]([a-z0-9._-]{0,53}[a-z0-9])?$'),
    kind text NOT NULL CHECK (kind IN ('standard', 'github', 'cloudevents', 'cloudevents-token')),
    secret text NOT NULL,
    -- How many secrets are valid.
    secrets integer NOT NULL DEFAULT 1 CHECK (secrets IN (1, 2)),
    -- One type for all messages, or a value of the message and the type for each of its values.
    event_type text NOT NULL DEFAULT '',
    type_from text NOT NULL DEFAULT '',
    events jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(events) = 'object'),
    -- Paths of the body that events keep; empty = all.
    fields text[] NOT NULL DEFAULT '{}',
    enabled boolean NOT NULL DEFAULT true,
    rate_per_minute integer NOT NULL CHECK (rate_per_minute > 0),
    -- Messages that can come at once, as of `refilled_at`; ten seconds' worth at most.
    allowance double precision NOT NULL DEFAULT 'infinity',
    refilled_at timestamptz NOT NULL DEFAULT now(),
    last_event_at timestamptz,
    version bigint NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    updated_by text NOT NULL,
    CHECK ((event_type = '') <> (events = '{}'))
);

-- migrate:down
DROP TABLE scheduler.hooks;
DELETE FROM scheduler.secrets WHERE jobs[1] LIKE 'hook/%';
