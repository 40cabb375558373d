-- migrate:up
-- Events and their triggers, who paused a schedule and why, and what `toban doctor` asks of each process.

-- ---------------------------------------------------------------- events

CREATE TABLE scheduler.event_triggers (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE CHECK (name ~ '^[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?$'),
    event_type text NOT NULL,
    definition_id bigint NOT NULL REFERENCES scheduler.job_definitions,
    enabled boolean NOT NULL DEFAULT true,
    spec jsonb NOT NULL,
    spec_hash text NOT NULL,
    version bigint NOT NULL DEFAULT 1,
    last_error text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    updated_by text NOT NULL DEFAULT ''
);
CREATE INDEX event_triggers_type ON scheduler.event_triggers (event_type) WHERE enabled;
CREATE INDEX event_triggers_definition ON scheduler.event_triggers (definition_id);

-- The inbox: accepted and not processed yet. Emitting only appends here, whatever partitions exist; the leader moves a row to the history
-- in the statement that makes its runs. Found by being here, never by a cursor: a transaction that commits late is not overlooked.
CREATE TABLE scheduler.events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_type text NOT NULL CHECK (event_type ~ '^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$'),
    payload jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(payload) = 'object' AND octet_length(payload::text) <= 32768),
    dedupe_key text CHECK (octet_length(dedupe_key) BETWEEN 1 AND 200),
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text NOT NULL DEFAULT '',
    retry_count integer NOT NULL DEFAULT 0,
    retry_at timestamptz,
    last_error text NOT NULL DEFAULT ''
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

-- Processed events, one partition a day of processed_at (UTC).
CREATE TABLE scheduler.events_history (
    id bigint NOT NULL,
    event_type text NOT NULL,
    payload jsonb NOT NULL,
    dedupe_key text,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    processed_at timestamptz NOT NULL DEFAULT now(),
    outcome text NOT NULL CHECK (outcome IN ('started', 'no_trigger', 'duplicate', 'failed')),
    message text NOT NULL DEFAULT '',
    PRIMARY KEY (id, processed_at)
) PARTITION BY RANGE (processed_at);

-- Dedupe keys of processed events; a row is forgotten after dedupe_days.
CREATE TABLE scheduler.event_keys (
    event_type text NOT NULL,
    dedupe_key text NOT NULL,
    event_id bigint NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (event_type, dedupe_key)
);
CREATE INDEX event_keys_seen ON scheduler.event_keys (seen_at);

-- Appends only: no lock that an application could wait for, none that it could hold against anybody.
CREATE FUNCTION scheduler.emit_event(event_type text, payload jsonb DEFAULT '{}', dedupe_key text DEFAULT NULL) RETURNS bigint
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
        INSERT INTO scheduler.events (event_type, payload, dedupe_key, created_by)
        VALUES (emit_event.event_type, COALESCE(emit_event.payload, '{}'), emit_event.dedupe_key, 'sql:' || session_user)
        RETURNING id
    $$;
REVOKE ALL ON FUNCTION scheduler.emit_event(text, jsonb, text) FROM PUBLIC;

-- Applications get this role and no other right: GRANT toban_emit TO their_role.
DO $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'toban_emit') THEN
        CREATE ROLE toban_emit NOLOGIN;
    END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN
    NULL;
WHEN insufficient_privilege THEN
    RAISE NOTICE 'role toban_emit is missing and this user may not create it: CREATE ROLE toban_emit NOLOGIN, then migrate again';
END $$;
DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'toban_emit') THEN
        GRANT USAGE ON SCHEMA scheduler TO toban_emit;
        GRANT EXECUTE ON FUNCTION scheduler.emit_event(text, jsonb, text) TO toban_emit;
    END IF;
END $$;

-- A run of an event names the event and the trigger.
DROP VIEW scheduler.job_runs;
ALTER TABLE scheduler.runs_live ADD COLUMN event_id bigint, ADD COLUMN trigger_name text NOT NULL DEFAULT '';
ALTER TABLE scheduler.runs_history ADD COLUMN event_id bigint, ADD COLUMN trigger_name text NOT NULL DEFAULT '';
CREATE VIEW scheduler.job_runs AS
    SELECT * FROM scheduler.runs_live UNION ALL SELECT * FROM scheduler.runs_history;
-- The last line against a doubled event: one run for each trigger.
CREATE TABLE scheduler.event_runs (
    event_id bigint NOT NULL,
    trigger_id bigint NOT NULL,
    run_id bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (event_id, trigger_id)
);
CREATE INDEX event_runs_created ON scheduler.event_runs (created_at);

-- ---------------------------------------------------------------- schedules

ALTER TABLE scheduler.schedules
    ADD COLUMN status_reason text NOT NULL DEFAULT '',
    ADD COLUMN status_actor text NOT NULL DEFAULT '';

-- ---------------------------------------------------------------- what doctor asks

ALTER TABLE scheduler.executors
    ADD COLUMN clock_skew_seconds double precision,
    ADD COLUMN disk_free_bytes bigint,
    ADD COLUMN certificate_not_after timestamptz;
ALTER TABLE scheduler.coordinators ADD COLUMN certificate_not_after timestamptz;

-- ---------------------------------------------------------------- partitions

CREATE OR REPLACE FUNCTION scheduler.ensure_partitions(first date, last date) RETURNS integer
    LANGUAGE plpgsql SET search_path = pg_catalog, scheduler SET TimeZone = 'UTC'
    AS $$
DECLARE
    day date;
    parent text;
    child text;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('scheduler.ensure_partitions'));
    FOREACH parent IN ARRAY ARRAY['runs_history', 'job_attempts', 'job_events', 'events_history'] LOOP
        FOR day IN SELECT generate_series(first, last, interval '1 day')::date LOOP
            child := parent || '_' || to_char(day, 'YYYYMMDD');
            IF to_regclass('scheduler.' || child) IS NULL THEN
                EXECUTE format('CREATE TABLE scheduler.%I PARTITION OF scheduler.%I FOR VALUES FROM (%L) TO (%L)',
                               child, parent, day, day + 1);
                made := made + 1;
            END IF;
        END LOOP;
    END LOOP;
    RETURN made;
END $$;

SELECT scheduler.ensure_partitions((now() AT TIME ZONE 'UTC')::date - 1, (now() AT TIME ZONE 'UTC')::date + 7);

-- migrate:down
DROP FUNCTION scheduler.emit_event(text, jsonb, text);
DROP VIEW scheduler.job_runs;
ALTER TABLE scheduler.runs_live DROP COLUMN event_id, DROP COLUMN trigger_name;
ALTER TABLE scheduler.runs_history DROP COLUMN event_id, DROP COLUMN trigger_name;
CREATE VIEW scheduler.job_runs AS
    SELECT * FROM scheduler.runs_live UNION ALL SELECT * FROM scheduler.runs_history;
DROP TABLE scheduler.event_runs, scheduler.event_keys, scheduler.events_history, scheduler.events, scheduler.event_triggers;
ALTER TABLE scheduler.schedules DROP COLUMN status_reason, DROP COLUMN status_actor;
ALTER TABLE scheduler.executors DROP COLUMN clock_skew_seconds, DROP COLUMN disk_free_bytes, DROP COLUMN certificate_not_after;
ALTER TABLE scheduler.coordinators DROP COLUMN certificate_not_after;
CREATE OR REPLACE FUNCTION scheduler.ensure_partitions(first date, last date) RETURNS integer
    LANGUAGE plpgsql SET search_path = pg_catalog, scheduler SET TimeZone = 'UTC'
    AS $$
DECLARE
    day date;
    parent text;
    child text;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('scheduler.ensure_partitions'));
    FOREACH parent IN ARRAY ARRAY['runs_history', 'job_attempts', 'job_events'] LOOP
        FOR day IN SELECT generate_series(first, last, interval '1 day')::date LOOP
            child := parent || '_' || to_char(day, 'YYYYMMDD');
            IF to_regclass('scheduler.' || child) IS NULL THEN
                EXECUTE format('CREATE TABLE scheduler.%I PARTITION OF scheduler.%I FOR VALUES FROM (%L) TO (%L)',
                               child, parent, day, day + 1);
                made := made + 1;
            END IF;
        END LOOP;
    END LOOP;
    RETURN made;
END $$;
