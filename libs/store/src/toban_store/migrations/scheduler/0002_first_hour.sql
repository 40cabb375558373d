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
    -- Writers allow 32 KiB of canonical JSON; jsonb as text has more blanks than that.
    payload jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(payload) = 'object' AND octet_length(payload::text) <= 65536),
    dedupe_key text CHECK (octet_length(dedupe_key) BETWEEN 1 AND 200),
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text NOT NULL DEFAULT '',
    retry_count integer NOT NULL DEFAULT 0,
    retry_at timestamptz,
    -- The triggers that are tried again; the others have had this event.
    retry_triggers text[] NOT NULL DEFAULT '{}',
    last_error text NOT NULL DEFAULT ''
    -- Without truncation: that takes a lock which an application would wait for.
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, vacuum_truncate = off);
CREATE INDEX events_key ON scheduler.events (event_type, dedupe_key) WHERE dedupe_key IS NOT NULL;

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
CREATE INDEX events_history_type ON scheduler.events_history (event_type, id DESC);

-- Dedupe keys of processed events; a row is forgotten after dedupe_days.
CREATE TABLE scheduler.event_keys (
    event_type text NOT NULL,
    dedupe_key text NOT NULL,
    event_id bigint NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (event_type, dedupe_key)
);
CREATE INDEX event_keys_seen ON scheduler.event_keys (seen_at);

-- Appends only: no lock that an application could wait for, none that it could hold against anybody. No NOTIFY either, since that makes
-- the commits of all who notify wait for each other; the leader looks twice a second.
CREATE FUNCTION scheduler.emit_event(event_type text, payload jsonb DEFAULT '{}', dedupe_key text DEFAULT NULL) RETURNS bigint
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    body jsonb := COALESCE(emit_event.payload, '{}');
    made bigint;
BEGIN
    IF emit_event.event_type IS NULL OR emit_event.event_type !~ '^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$' THEN
        RAISE EXCEPTION 'scheduler.emit_event: event_type is %, which is not a type of event', COALESCE(quote_literal(left(emit_event.event_type, 60)), 'NULL')
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Write something like order.paid: letters, digits and . _ : / - only, a letter or digit first, at most 128 characters.';
    END IF;
    IF jsonb_typeof(body) <> 'object' THEN
        RAISE EXCEPTION 'scheduler.emit_event: payload is a JSON %, not an object', jsonb_typeof(body)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give an object, such as jsonb_build_object(''id'', 5), or NULL for an empty one.';
    END IF;
    IF octet_length(body::text) > 32768 THEN
        RAISE EXCEPTION 'scheduler.emit_event: payload has % bytes as text, at most 32768 are allowed', octet_length(body::text)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Store the data and emit the key under which it is found.';
    END IF;
    IF octet_length(emit_event.dedupe_key) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION 'scheduler.emit_event: dedupe_key has % bytes, 1 to 200 are allowed', octet_length(emit_event.dedupe_key)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Pass NULL for no key; of a long key pass a hash.';
    END IF;
    INSERT INTO scheduler.events (event_type, payload, dedupe_key, created_by)
    VALUES (emit_event.event_type, body, emit_event.dedupe_key, 'sql:' || session_user)
    RETURNING id INTO made;
    RETURN made;
END $$;
REVOKE ALL ON FUNCTION scheduler.emit_event(text, jsonb, text) FROM PUBLIC;

-- Applications get this role and no other right: GRANT toban_emit TO their_role. A migrating user that may not create roles goes on
-- without it; docs/events.md has the three statements that make it later.
DO $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'toban_emit') THEN
        CREATE ROLE toban_emit NOLOGIN;
    END IF;
EXCEPTION WHEN duplicate_object OR unique_violation OR insufficient_privilege THEN
    NULL;
END $$;
DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'toban_emit') THEN
        GRANT USAGE ON SCHEMA scheduler TO toban_emit;
        GRANT EXECUTE ON FUNCTION scheduler.emit_event(text, jsonb, text) TO toban_emit;
    END IF;
END $$;

-- USAGE on the schema must not open its other functions.
REVOKE ALL ON FUNCTION scheduler.current_timeline(), scheduler.current_system_id(), scheduler.ensure_partitions(date, date) FROM PUBLIC;

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

-- Schedules that are gone: their ledger stays readable by name, and one of the same name that is made anew begins where they ended.
CREATE TABLE scheduler.schedules_deleted (
    id bigint PRIMARY KEY,
    name text NOT NULL,
    spec jsonb NOT NULL,
    -- Slots up to here are settled, or were sent ahead of their time.
    settled_until timestamptz NOT NULL,
    deleted_at timestamptz NOT NULL DEFAULT now(),
    deleted_by text NOT NULL DEFAULT '',
    reason text NOT NULL DEFAULT ''
);
CREATE INDEX schedules_deleted_name ON scheduler.schedules_deleted (name);

-- ---------------------------------------------------------------- the leader's beat

ALTER TABLE scheduler.leader_beat
    -- The newest slot that a leader has fired, for the health of every coordinator.
    ADD COLUMN last_fire_at timestamptz,
    -- An operator asks the leader of this epoch to step down; it looks at each beat. Void as soon as another epoch leads.
    ADD COLUMN demote_epoch bigint NOT NULL DEFAULT -1;

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

-- Drops the oldest day partition before a date, unless a live run still has attempts or events in it. Answers its name; NULL: there is none.
-- A drop locks its parent for a moment; it waits for that lock so shortly that nobody who waits behind it notices.
CREATE FUNCTION scheduler.drop_partition(before date) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, scheduler SET TimeZone = 'UTC' SET lock_timeout = '100ms'
    AS $$
DECLARE
    part record;
    in_use boolean;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('scheduler.ensure_partitions'));
    FOR part IN
        SELECT d.parent, d.child, d.day
          FROM (SELECT p.relname AS parent, c.relname AS child,
                       CASE WHEN c.relname ~ '_[0-9]{8}$' THEN to_date(right(c.relname, 8), 'YYYYMMDD') END AS day
                  FROM pg_inherits i JOIN pg_class p ON p.oid = i.inhparent JOIN pg_class c ON c.oid = i.inhrelid
                 WHERE p.relnamespace = 'scheduler'::regnamespace AND p.relkind = 'p'
                   AND p.relname IN ('runs_history', 'job_attempts', 'job_events', 'events_history')) d
         WHERE d.day < before
         ORDER BY d.day, d.parent
    LOOP
        in_use := false;
        IF part.parent IN ('job_attempts', 'job_events') THEN
            EXECUTE format('SELECT EXISTS (SELECT 1 FROM scheduler.runs_live r WHERE r.created_at < %L'
                           ' AND EXISTS (SELECT 1 FROM scheduler.%I c WHERE c.run_id = r.id))', part.day + 1, part.child) INTO in_use;
        END IF;
        IF NOT in_use THEN
            EXECUTE format('DROP TABLE scheduler.%I', part.child);
            RETURN part.child;
        END IF;
    END LOOP;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION scheduler.drop_partition(date) FROM PUBLIC;

-- What is forgotten by age is found by these.
CREATE INDEX fire_ledger_skipped ON scheduler.fire_ledger (last_slot) WHERE run_id IS NULL;
CREATE INDEX run_idempotency_created ON scheduler.run_idempotency (created_at);
CREATE INDEX orphan_results_received ON scheduler.orphan_results (received_at);

-- migrate:down
DROP INDEX scheduler.fire_ledger_skipped, scheduler.run_idempotency_created, scheduler.orphan_results_received;
DROP FUNCTION scheduler.drop_partition(date);
DROP FUNCTION scheduler.emit_event(text, jsonb, text);
DROP VIEW scheduler.job_runs;
ALTER TABLE scheduler.runs_live DROP COLUMN event_id, DROP COLUMN trigger_name;
ALTER TABLE scheduler.runs_history DROP COLUMN event_id, DROP COLUMN trigger_name;
CREATE VIEW scheduler.job_runs AS
    SELECT * FROM scheduler.runs_live UNION ALL SELECT * FROM scheduler.runs_history;
DROP TABLE scheduler.event_runs, scheduler.event_keys, scheduler.events_history, scheduler.events, scheduler.event_triggers;
ALTER TABLE scheduler.schedules DROP COLUMN status_reason, DROP COLUMN status_actor;
DROP TABLE scheduler.schedules_deleted;
ALTER TABLE scheduler.executors DROP COLUMN clock_skew_seconds, DROP COLUMN disk_free_bytes, DROP COLUMN certificate_not_after;
ALTER TABLE scheduler.coordinators DROP COLUMN certificate_not_after;
ALTER TABLE scheduler.leader_beat DROP COLUMN last_fire_at, DROP COLUMN demote_epoch;
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
