-- migrate:up
-- Schema `logs`: compressed chunks of job output, partitioned by the day of the dispatch. Owned by the log-archiver.

CREATE SCHEMA IF NOT EXISTS logs;

-- The partition key is PostgreSQL's day of the dispatch, carried by the log ticket, also when a chunk is sent again: a chunk is stored once.
CREATE TABLE logs.chunks (
    log_day date NOT NULL,
    run_id bigint NOT NULL,
    token bigint NOT NULL,
    stream smallint NOT NULL CHECK (stream BETWEEN 1 AND 3),
    seq_from bigint NOT NULL CHECK (seq_from > 0),
    seq_to bigint NOT NULL,
    line_count integer NOT NULL CHECK (line_count > 0),
    raw_bytes bigint NOT NULL CHECK (raw_bytes >= 0),
    first_at timestamptz NOT NULL,
    last_at timestamptz NOT NULL,
    -- A zstd frame; not compressed again by PostgreSQL.
    data bytea NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (run_id, token, stream, seq_from, log_day),
    CHECK (seq_from <= seq_to)
) PARTITION BY RANGE (log_day);
ALTER TABLE logs.chunks ALTER COLUMN data SET STORAGE EXTERNAL;

-- One row a token that has sent something; sealed once its last sequence number is known.
CREATE TABLE logs.tokens (
    log_day date NOT NULL,
    run_id bigint NOT NULL,
    token bigint NOT NULL,
    incarnation uuid NOT NULL,
    last_seq bigint,
    sealed_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (run_id, token, log_day),
    CHECK ((last_seq IS NULL) = (sealed_at IS NULL))
) PARTITION BY RANGE (log_day);

CREATE FUNCTION logs.ensure_partitions(first date, last date) RETURNS integer
    LANGUAGE plpgsql SET search_path = pg_catalog, logs SET TimeZone = 'UTC'
    AS $$
DECLARE
    day date;
    parent text;
    child text;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('logs.ensure_partitions'));
    FOREACH parent IN ARRAY ARRAY['chunks', 'tokens'] LOOP
        FOR day IN SELECT generate_series(first, last, interval '1 day')::date LOOP
            child := parent || '_' || to_char(day, 'YYYYMMDD');
            IF to_regclass('logs.' || child) IS NULL THEN
                EXECUTE format('CREATE TABLE logs.%I PARTITION OF logs.%I FOR VALUES FROM (%L) TO (%L)',
                               child, parent, day, day + 1);
                made := made + 1;
            END IF;
        END LOOP;
    END LOOP;
    RETURN made;
END $$;

SELECT logs.ensure_partitions((now() AT TIME ZONE 'UTC')::date - 1, (now() AT TIME ZONE 'UTC')::date + 7);

-- migrate:down
DROP SCHEMA logs CASCADE;
