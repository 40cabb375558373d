-- migrate:up
-- Schema `scheduler`: the truth about definitions, schedules, runs, executors and who leads. Owned by the coordinator.
-- PostgreSQL 15 is the floor. Live runs are in one unpartitioned table; finished ones in a history partitioned by day; unique keys
-- live in unpartitioned tables; no update ever changes a partition key.

CREATE SCHEMA IF NOT EXISTS scheduler;

CREATE SEQUENCE scheduler.worker_id_seq AS bigint;

-- ---------------------------------------------------------------- leadership

CREATE TABLE scheduler.leader (
    id smallint PRIMARY KEY CHECK (id = 1),
    epoch bigint NOT NULL CHECK (epoch >= 0),
    holder uuid,
    worker_id bigint,
    address text NOT NULL DEFAULT '',
    node_id text NOT NULL DEFAULT '',
    taken_at timestamptz,
    -- Evidence of a resign only while it equals the epoch.
    resigned_epoch bigint NOT NULL DEFAULT -1,
    -- The cluster that a leader has seen stand for a whole lease.
    settled_system_id text NOT NULL,
    settled_timeline bigint NOT NULL
);

-- A row of its own, so that fenced transactions (FOR SHARE on leader) cannot starve the beat.
CREATE TABLE scheduler.leader_beat (
    id smallint PRIMARY KEY CHECK (id = 1),
    epoch bigint NOT NULL,
    beat bigint NOT NULL DEFAULT 0,
    beaten_at timestamptz NOT NULL DEFAULT now(),
    last_tick_at timestamptz
) WITH (fillfactor = 50);

-- First 8 hex digits of the WAL file name: the timeline, read live (pg_control_checkpoint lags to the next checkpoint).
CREATE FUNCTION scheduler.current_timeline() RETURNS bigint
    LANGUAGE sql STABLE SET search_path = pg_catalog
    AS $$ SELECT ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint $$;

CREATE FUNCTION scheduler.current_system_id() RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog
    AS $$ SELECT system_identifier::text FROM pg_control_system() $$;

-- Migrations settle an empty database.
INSERT INTO scheduler.leader (id, epoch, settled_system_id, settled_timeline)
    VALUES (1, 0, scheduler.current_system_id(), scheduler.current_timeline());
INSERT INTO scheduler.leader_beat (id, epoch) VALUES (1, 0);

-- One row an incarnation of a coordinator, for the cluster page and for "stopped" told apart from "lost".
CREATE TABLE scheduler.coordinators (
    incarnation uuid PRIMARY KEY,
    worker_id bigint NOT NULL UNIQUE,
    node_id text NOT NULL,
    address text NOT NULL,
    pid integer NOT NULL,
    version text NOT NULL,
    role text NOT NULL DEFAULT 'standby' CHECK (role IN ('leader', 'subleader', 'standby')),
    status text NOT NULL DEFAULT 'ok' CHECK (status IN ('ok', 'stopped')),
    -- Its machine's clock minus PostgreSQL's, seconds; null until it has said so.
    clock_skew_seconds double precision,
    started_at timestamptz NOT NULL DEFAULT now(),
    last_seen_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- ---------------------------------------------------------------- executors

CREATE TABLE scheduler.executors (
    incarnation uuid PRIMARY KEY,
    worker_id bigint NOT NULL UNIQUE,
    instance text NOT NULL,
    node_id text NOT NULL,
    boot_id text NOT NULL,
    pid integer NOT NULL,
    grpc_host text NOT NULL,
    grpc_port integer NOT NULL CHECK (grpc_port BETWEEN 1 AND 65535),
    key_hash bytea NOT NULL,
    state text NOT NULL DEFAULT 'on' CHECK (state IN ('on', 'draining', 'detached', 'cut', 'off')),
    detach_mode text NOT NULL DEFAULT '' CHECK (detach_mode IN ('', 'stop', 'let_finish')),
    lease_ms integer NOT NULL CHECK (lease_ms > 0),
    grant_seq bigint NOT NULL DEFAULT 0,
    echo_seq bigint NOT NULL DEFAULT 0,
    granted_at timestamptz,
    epoch_max bigint NOT NULL DEFAULT 0,
    slots integer NOT NULL CHECK (slots > 0),
    free_slots integer NOT NULL DEFAULT 0,
    load double precision NOT NULL DEFAULT 0,
    labels jsonb NOT NULL DEFAULT '{}',
    version text NOT NULL DEFAULT '',
    -- Orders up to this token are refused by the executor for good.
    smallest_live_token bigint NOT NULL DEFAULT 0,
    -- Serial of the last order drawn for this incarnation; with the epoch it orders StartJob, CancelJob, Drain and Revoke.
    order_serial bigint NOT NULL DEFAULT 0,
    registered_at timestamptz NOT NULL DEFAULT now(),
    last_heartbeat_at timestamptz NOT NULL DEFAULT now(),
    detached_at timestamptz,
    off_at timestamptz,
    off_reason text NOT NULL DEFAULT '',
    -- Why this incarnation is known to be dead before its lease ends (docs/fencing.md 3.8); empty = it is not.
    attested_reason text NOT NULL DEFAULT '',
    CHECK ((state = 'off') = (off_at IS NOT NULL)),
    CHECK (grant_seq >= 0 AND echo_seq <= grant_seq)
) WITH (fillfactor = 50);
CREATE INDEX executors_live ON scheduler.executors (instance) WHERE state <> 'off';

-- Drain is kept per executor instance: it outlives restarts and re-joins, and ends by undrain.
CREATE TABLE scheduler.executor_drains (
    instance text PRIMARY KEY,
    reason text NOT NULL DEFAULT '',
    actor text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT now()
);

-- Orders that the leader could not deliver itself; whichever coordinator answers a heartbeat sends the open ones.
CREATE TABLE scheduler.executor_orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    incarnation uuid NOT NULL REFERENCES scheduler.executors ON DELETE CASCADE,
    kind text NOT NULL CHECK (kind IN ('start', 'cancel', 'drain', 'revoke')),
    run_id bigint,
    token bigint,
    payload jsonb NOT NULL DEFAULT '{}',
    epoch bigint NOT NULL,
    serial bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    done_at timestamptz,
    result text NOT NULL DEFAULT ''
);
CREATE INDEX executor_orders_open ON scheduler.executor_orders (incarnation, id) WHERE done_at IS NULL;
CREATE UNIQUE INDEX executor_orders_once ON scheduler.executor_orders (incarnation, kind, run_id, token)
    WHERE done_at IS NULL AND run_id IS NOT NULL;

-- ---------------------------------------------------------------- definitions and schedules

CREATE TABLE scheduler.job_definitions (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE CHECK (name ~ '^[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?$'),
    version bigint NOT NULL DEFAULT 1,
    enabled boolean NOT NULL DEFAULT true,
    spec jsonb NOT NULL,
    spec_hash text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    updated_by text NOT NULL DEFAULT ''
);

CREATE TABLE scheduler.job_definition_versions (
    definition_id bigint NOT NULL REFERENCES scheduler.job_definitions,
    version bigint NOT NULL,
    spec jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text NOT NULL DEFAULT '',
    PRIMARY KEY (definition_id, version)
);

CREATE TABLE scheduler.schedules (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE CHECK (name ~ '^[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?$'),
    definition_id bigint NOT NULL REFERENCES scheduler.job_definitions,
    spec jsonb NOT NULL,
    spec_hash text NOT NULL,
    timezone text NOT NULL DEFAULT 'UTC',
    enabled boolean NOT NULL DEFAULT true,
    status text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'paused', 'failed')),
    -- The next slot not yet settled (run row or ledger row); NULL when there is none.
    next_run_at timestamptz,
    last_run_at timestamptz,
    fire_retry_count integer NOT NULL DEFAULT 0,
    fire_retry_at timestamptz,
    last_error text NOT NULL DEFAULT '',
    scope text NOT NULL DEFAULT 'system',
    scope_id text NOT NULL DEFAULT '',
    version bigint NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    updated_by text NOT NULL DEFAULT ''
) WITH (fillfactor = 70);
CREATE INDEX schedules_due ON scheduler.schedules (next_run_at) WHERE enabled AND status = 'active' AND next_run_at IS NOT NULL;
CREATE INDEX schedules_definition ON scheduler.schedules (definition_id);

-- Each due slot: one run or one named skip. A stretch of skipped slots is one row.
CREATE TABLE scheduler.fire_ledger (
    schedule_id bigint NOT NULL,
    first_slot timestamptz NOT NULL,
    last_slot timestamptz NOT NULL,
    slots bigint NOT NULL DEFAULT 1 CHECK (slots > 0),
    -- fired | late | overlap | catch_up | calendar | paused | disabled | withdrawn | submit_failed
    outcome text NOT NULL,
    run_id bigint,
    message text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (schedule_id, first_slot),
    CHECK (first_slot <= last_slot),
    CHECK ((outcome = 'fired') = (run_id IS NOT NULL))
);

-- ---------------------------------------------------------------- runs

CREATE TYPE scheduler.run_state AS ENUM (
    'PENDING', 'DEFERRED', 'ASSIGNED', 'RUNNING', 'WAITING_WORKER', 'CANCEL_REQUESTED', 'ORPHANED',
    'SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED', 'SKIPPED', 'EXPIRED'
);

-- A copy of TRANSITIONS in toban_domain.run (a test compares the two); the trigger below refuses anything else.
CREATE TABLE scheduler.run_transitions (
    from_state scheduler.run_state NOT NULL,
    to_state scheduler.run_state NOT NULL,
    PRIMARY KEY (from_state, to_state)
);
INSERT INTO scheduler.run_transitions (from_state, to_state)
SELECT source::scheduler.run_state, unnest(targets)::scheduler.run_state
  FROM (VALUES
    ('PENDING', ARRAY['ASSIGNED', 'DEFERRED', 'WAITING_WORKER', 'SKIPPED', 'CANCELED', 'EXPIRED', 'TIMED_OUT']),
    ('DEFERRED', ARRAY['PENDING', 'SKIPPED', 'CANCELED', 'EXPIRED']),
    ('ASSIGNED', ARRAY['RUNNING', 'SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCEL_REQUESTED', 'CANCELED', 'ORPHANED', 'PENDING']),
    ('RUNNING', ARRAY['SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCEL_REQUESTED', 'ORPHANED', 'PENDING']),
    ('WAITING_WORKER', ARRAY['SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCEL_REQUESTED', 'PENDING', 'EXPIRED']),
    ('CANCEL_REQUESTED', ARRAY['CANCELED', 'SUCCEEDED', 'FAILED', 'TIMED_OUT']),
    ('ORPHANED', ARRAY['SUCCEEDED', 'FAILED', 'TIMED_OUT', 'PENDING', 'EXPIRED', 'CANCELED'])
  ) AS t (source, targets);

CREATE SEQUENCE scheduler.run_id_seq AS bigint;

CREATE TABLE scheduler.runs_live (
    id bigint NOT NULL DEFAULT nextval('scheduler.run_id_seq'),
    definition_id bigint NOT NULL,
    definition_version bigint NOT NULL,
    job_name text NOT NULL,
    schedule_id bigint,
    schedule_name text NOT NULL DEFAULT '',
    origin text NOT NULL CHECK (origin IN ('slot', 'demand', 'event', 'rerun')),
    slot timestamptz,
    scheduled_for timestamptz NOT NULL,
    state scheduler.run_state NOT NULL DEFAULT 'PENDING',
    phase text NOT NULL DEFAULT '',
    priority integer NOT NULL DEFAULT 0,
    scope text NOT NULL DEFAULT 'system',
    scope_id text NOT NULL DEFAULT '',
    attempt integer NOT NULL DEFAULT 1,
    max_attempts integer NOT NULL DEFAULT 1,
    lost_count integer NOT NULL DEFAULT 0,
    max_lost integer NOT NULL DEFAULT 3,
    timeout_seconds integer NOT NULL DEFAULT 0,
    version bigint NOT NULL DEFAULT 1,
    -- Not before this time (retry backoff); NULL = scheduled_for decides alone.
    not_before timestamptz,
    -- (incarnation, token) of the dispatch that holds the run.
    token bigint,
    log_day date,
    leader_epoch bigint,
    assigned_incarnation uuid,
    assigned_worker_id bigint,
    assigned_at timestamptz,
    dispatched_at timestamptz,
    started_at timestamptz,
    finished_at timestamptz,
    exit_code integer,
    term_signal integer,
    reason text NOT NULL DEFAULT '',
    error_summary text NOT NULL DEFAULT '',
    last_line text NOT NULL DEFAULT '',
    log_ref text NOT NULL DEFAULT '',
    payload jsonb NOT NULL DEFAULT '{}',
    progress jsonb,
    result jsonb,
    idempotency_key text,
    cancel_requested_at timestamptz,
    cancel_reason text NOT NULL DEFAULT '',
    cancel_mode text NOT NULL DEFAULT '',
    cancel_actor text NOT NULL DEFAULT '',
    continuation_state text NOT NULL DEFAULT '',
    continuation_check_started_at timestamptz,
    continuation_check_deadline_at timestamptz,
    locked_by text,
    locked_until timestamptz,
    rerun_of bigint,
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text NOT NULL DEFAULT '',
    PRIMARY KEY (id),
    CHECK (state NOT IN ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED', 'SKIPPED', 'EXPIRED')),
    CHECK (finished_at IS NULL),
    CHECK (state NOT IN ('ASSIGNED', 'RUNNING', 'CANCEL_REQUESTED', 'ORPHANED') OR assigned_incarnation IS NOT NULL
           OR (state = 'CANCEL_REQUESTED' AND locked_by IS NOT NULL)),
    CHECK (state NOT IN ('RUNNING', 'ORPHANED') OR token IS NOT NULL),
    CHECK (state <> 'RUNNING' OR started_at IS NOT NULL),
    CHECK (dispatched_at IS NULL OR token IS NOT NULL)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
ALTER SEQUENCE scheduler.run_id_seq OWNED BY scheduler.runs_live.id;
CREATE INDEX runs_live_pending ON scheduler.runs_live (priority DESC, scheduled_for, id) WHERE state = 'PENDING';
CREATE INDEX runs_live_held ON scheduler.runs_live (assigned_incarnation)
    WHERE state IN ('ASSIGNED', 'RUNNING', 'CANCEL_REQUESTED', 'ORPHANED');
CREATE INDEX runs_live_ahead ON scheduler.runs_live (scheduled_for, id) WHERE state = 'ASSIGNED' AND dispatched_at IS NULL;
CREATE INDEX runs_live_schedule ON scheduler.runs_live (schedule_id) WHERE schedule_id IS NOT NULL;

-- Terminal runs, one partition a day of finished_at (UTC).
CREATE TABLE scheduler.runs_history (
    LIKE scheduler.runs_live INCLUDING DEFAULTS,
    CHECK (state IN ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED', 'SKIPPED', 'EXPIRED')),
    PRIMARY KEY (id, finished_at)
) PARTITION BY RANGE (finished_at);
CREATE INDEX runs_history_job ON scheduler.runs_history (job_name, id DESC);
CREATE INDEX runs_history_schedule ON scheduler.runs_history (schedule_id, id DESC);

CREATE VIEW scheduler.job_runs AS
    SELECT * FROM scheduler.runs_live UNION ALL SELECT * FROM scheduler.runs_history;

-- The last line against a doubled slot: outlives the move of the run to the history.
CREATE TABLE scheduler.run_slots (
    schedule_id bigint NOT NULL,
    slot timestamptz NOT NULL,
    run_id bigint NOT NULL,
    PRIMARY KEY (schedule_id, slot)
);
CREATE INDEX run_slots_slot ON scheduler.run_slots (slot);

CREATE TABLE scheduler.run_idempotency (
    key text PRIMARY KEY CHECK (length(key) BETWEEN 1 AND 200),
    run_id bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- One row a token (a dispatch); the day of the dispatch is the partition key and never changes.
CREATE TABLE scheduler.job_attempts (
    log_day date NOT NULL,
    run_id bigint NOT NULL,
    token bigint NOT NULL,
    attempt integer NOT NULL,
    leader_epoch bigint NOT NULL,
    incarnation uuid NOT NULL,
    worker_id bigint NOT NULL,
    state text NOT NULL DEFAULT 'DISPATCHED'
        CHECK (state IN ('DISPATCHED', 'RUNNING', 'SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED', 'REVOKED', 'LOST')),
    dispatched_at timestamptz NOT NULL,
    started_at timestamptz,
    finished_at timestamptz,
    exit_code integer,
    term_signal integer,
    reason text NOT NULL DEFAULT '',
    error_summary text NOT NULL DEFAULT '',
    last_seq bigint,
    outcome jsonb,
    PRIMARY KEY (run_id, token, log_day)
) PARTITION BY RANGE (log_day);

-- A result that came for a token which was not accepted any more: kept and shown, never applied.
CREATE TABLE scheduler.orphan_results (
    run_id bigint NOT NULL,
    token bigint NOT NULL,
    outcome jsonb NOT NULL,
    incarnation uuid NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (run_id, token)
);

CREATE TABLE scheduler.job_events (
    at timestamptz NOT NULL DEFAULT now(),
    run_id bigint NOT NULL,
    type text NOT NULL,
    from_state text NOT NULL DEFAULT '',
    to_state text NOT NULL DEFAULT '',
    message text NOT NULL DEFAULT '',
    actor text NOT NULL DEFAULT '',
    metadata jsonb NOT NULL DEFAULT '{}'
) PARTITION BY RANGE (at);
CREATE INDEX job_events_run ON scheduler.job_events (run_id, at);

CREATE FUNCTION scheduler.check_transition() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, scheduler
    AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM scheduler.run_transitions WHERE from_state = OLD.state AND to_state = NEW.state) THEN
        RAISE EXCEPTION 'run % cannot move from % to %', OLD.id, OLD.state, NEW.state USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER runs_live_transition BEFORE UPDATE OF state ON scheduler.runs_live
    FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION scheduler.check_transition();

CREATE FUNCTION scheduler.refuse_change() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog
    AS $$ BEGIN RAISE EXCEPTION 'a terminal run never changes (run %)', OLD.id USING ERRCODE = 'check_violation'; END $$;
CREATE TRIGGER runs_history_final BEFORE UPDATE ON scheduler.runs_history
    FOR EACH ROW EXECUTE FUNCTION scheduler.refuse_change();

-- ---------------------------------------------------------------- settings and audit

CREATE TABLE scheduler.settings (
    name text PRIMARY KEY,
    value jsonb NOT NULL,
    version bigint NOT NULL DEFAULT 1,
    updated_at timestamptz NOT NULL DEFAULT now(),
    updated_by text NOT NULL DEFAULT ''
);

CREATE TABLE scheduler.admin_action_log (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(),
    actor text NOT NULL,
    action text NOT NULL,
    target text NOT NULL,
    before jsonb,
    after jsonb,
    reason text NOT NULL DEFAULT ''
);

-- ---------------------------------------------------------------- partitions

-- Makes the day partitions [first, last] of every partitioned table of this schema; safe to repeat and to run twice at once.
CREATE FUNCTION scheduler.ensure_partitions(first date, last date) RETURNS integer
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

SELECT scheduler.ensure_partitions((now() AT TIME ZONE 'UTC')::date - 1, (now() AT TIME ZONE 'UTC')::date + 7);

-- migrate:down
DROP SCHEMA scheduler CASCADE;
