-- migrate:up
-- The archive: which chunks are in which object, and who may write that down (docs/logs.md "Archive").

-- Sealed because its executor is gone, not because it told its last line: a seal that comes later still counts.
ALTER TABLE logs.tokens ADD COLUMN incomplete boolean NOT NULL DEFAULT false;

-- One archiver works at a time. Every write of it joins this row FOR SHARE with its epoch; a take-over raises the epoch.
CREATE TABLE logs.archive_lease (
    id smallint PRIMARY KEY DEFAULT 1 CHECK (id = 1),
    epoch bigint NOT NULL DEFAULT 0 CHECK (epoch >= 0),
    holder text NOT NULL DEFAULT '',
    held boolean NOT NULL DEFAULT false,
    beat_at timestamptz NOT NULL DEFAULT now(),
    last_pass_at timestamptz,
    last_pass text NOT NULL DEFAULT '',
    last_error text NOT NULL DEFAULT ''
);
INSERT INTO logs.archive_lease DEFAULT VALUES;

-- planned: about to be put; stored: put, not yet read back; verified: read back, its manifest rows are there.
CREATE TABLE logs.objects (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key text NOT NULL UNIQUE,
    log_day date NOT NULL,
    sha256 bytea NOT NULL CHECK (octet_length(sha256) = 32),
    bytes bigint NOT NULL CHECK (bytes > 0),
    token_count integer NOT NULL CHECK (token_count > 0),
    chunk_count integer NOT NULL CHECK (chunk_count > 0),
    line_count bigint NOT NULL CHECK (line_count > 0),
    state text NOT NULL DEFAULT 'planned' CHECK (state IN ('planned', 'stored', 'verified')),
    epoch bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    stored_at timestamptz,
    verified_at timestamptz,
    CHECK ((state = 'planned') = (stored_at IS NULL)),
    CHECK ((state = 'verified') = (verified_at IS NOT NULL))
);
CREATE INDEX objects_unfinished ON logs.objects (id) WHERE state <> 'verified';
CREATE INDEX objects_day ON logs.objects (log_day, id);

-- One row a chunk that a verified object holds: its frame is `byte_length` bytes from `byte_offset` on. Such a chunk is covered: its row in
-- logs.chunks may go, with its whole partition. A chunk that comes again later in another length is a range of its own.
CREATE TABLE logs.manifests (
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
    object_id bigint NOT NULL REFERENCES logs.objects,
    byte_offset bigint NOT NULL CHECK (byte_offset >= 0),
    byte_length integer NOT NULL CHECK (byte_length > 0),
    sha256 bytea NOT NULL CHECK (octet_length(sha256) = 32),
    PRIMARY KEY (run_id, token, stream, seq_from, log_day, seq_to),
    CHECK (seq_from <= seq_to)
);
CREATE INDEX manifests_object ON logs.manifests (object_id, byte_offset);

-- Chunks of one day that no verified object holds.
CREATE FUNCTION logs.uncovered(day date) RETURNS bigint
    LANGUAGE sql STABLE SET search_path = pg_catalog, logs
    AS $$
SELECT count(*) FROM logs.chunks c
 WHERE c.log_day = day
   AND NOT EXISTS (SELECT 1 FROM logs.manifests m
                    WHERE m.run_id = c.run_id AND m.token = c.token AND m.stream = c.stream AND m.seq_from = c.seq_from
                      AND m.log_day = c.log_day AND m.seq_to = c.seq_to AND m.line_count = c.line_count)
$$;

-- Drops the chunks of one day when the caller still holds the lease, every token of the day has ended and every chunk is covered:
-- dropped | absent | uncovered | fenced.
-- Writers of that day wait while the chunks are counted; a busy table is left for the next pass.
CREATE FUNCTION logs.drop_archived(day date, my_epoch bigint) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, logs SET TimeZone = 'UTC' SET lock_timeout = '100ms'
    AS $$
DECLARE
    child text := 'chunks_' || to_char(day, 'YYYYMMDD');
BEGIN
    PERFORM 1 FROM logs.archive_lease WHERE id = 1 AND epoch = my_epoch AND held FOR SHARE;
    IF NOT FOUND THEN
        RETURN 'fenced';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext('logs.ensure_partitions'));
    IF to_regclass('logs.' || child) IS NULL THEN
        RETURN 'absent';
    END IF;
    EXECUTE format('LOCK TABLE logs.%I IN SHARE ROW EXCLUSIVE MODE', child);
    IF EXISTS (SELECT 1 FROM logs.tokens WHERE log_day = day AND sealed_at IS NULL) OR logs.uncovered(day) > 0 THEN
        RETURN 'uncovered';
    END IF;
    EXECUTE format('DROP TABLE logs.%I', child);
    RETURN 'dropped';
END $$;
REVOKE ALL ON FUNCTION logs.drop_archived(date, bigint) FROM PUBLIC;

-- migrate:down
DROP FUNCTION logs.drop_archived(date, bigint);
DROP FUNCTION logs.uncovered(date);
DROP TABLE logs.manifests, logs.objects, logs.archive_lease;
ALTER TABLE logs.tokens DROP COLUMN incomplete;
