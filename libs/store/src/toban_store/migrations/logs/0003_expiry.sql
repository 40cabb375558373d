-- migrate:up
-- Retention of the archive (docs/logs.md "How long the archive keeps"): an object is marked, leaves the bucket, and is forgotten with its day.

-- Readers queue behind a lock that is waited for: rather begin again than keep them for long.
SET LOCAL lock_timeout = '1s';

-- marked_at: it is old enough, and still read; a longer retention takes that back. expired_at: readers pass over its lines from then on, and
-- nothing takes that back. deleted_at: it is not in the bucket any more. The state stays verified, so that an older release neither packs
-- its chunks again nor takes it for unfinished. NOT VALID: no row has these columns yet, so none is looked at.
ALTER TABLE logs.objects
    ADD COLUMN marked_at timestamptz, ADD COLUMN expired_at timestamptz, ADD COLUMN deleted_at timestamptz,
    ADD CONSTRAINT objects_marked CHECK (marked_at IS NULL OR state = 'verified') NOT VALID,
    ADD CONSTRAINT objects_expired CHECK (expired_at IS NULL OR marked_at IS NOT NULL) NOT VALID,
    ADD CONSTRAINT objects_deleted CHECK (deleted_at IS NULL OR expired_at IS NOT NULL) NOT VALID;
CREATE INDEX objects_marked_waiting ON logs.objects (log_day) WHERE marked_at IS NOT NULL AND expired_at IS NULL;
CREATE INDEX objects_expired_waiting ON logs.objects (id) WHERE expired_at IS NOT NULL AND deleted_at IS NULL;

-- Drops the tokens of one day when the caller still holds the lease and nothing else is left of the day: forgotten | absent | kept | fenced.
CREATE FUNCTION logs.forget_day(day date, my_epoch bigint) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, logs SET TimeZone = 'UTC' SET lock_timeout = '100ms'
    AS $$
DECLARE
    child text := 'tokens_' || to_char(day, 'YYYYMMDD');
BEGIN
    PERFORM 1 FROM logs.archive_lease WHERE id = 1 AND epoch = my_epoch AND held FOR SHARE;
    IF NOT FOUND THEN
        RETURN 'fenced';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext('logs.ensure_partitions'));
    IF to_regclass('logs.' || child) IS NULL THEN
        RETURN 'absent';
    END IF;
    IF to_regclass('logs.chunks_' || to_char(day, 'YYYYMMDD')) IS NOT NULL OR EXISTS (SELECT 1 FROM logs.objects WHERE log_day = day) THEN
        RETURN 'kept';
    END IF;
    EXECUTE format('DROP TABLE logs.%I', child);
    RETURN 'forgotten';
END $$;
REVOKE ALL ON FUNCTION logs.forget_day(date, bigint) FROM PUBLIC;

-- migrate:down
DO $$
BEGIN
    LOCK TABLE logs.objects IN ACCESS EXCLUSIVE MODE;
    IF EXISTS (SELECT 1 FROM logs.objects WHERE expired_at IS NOT NULL) THEN
        RAISE EXCEPTION 'objects have expired or are deleted: without this migration readers would look for them in the bucket'
            USING HINT = 'stay at this migration, or bring logs.objects back from a backup';
    END IF;
END $$;
DROP FUNCTION logs.forget_day(date, bigint);
DROP INDEX logs.objects_expired_waiting, logs.objects_marked_waiting;
ALTER TABLE logs.objects DROP COLUMN deleted_at, DROP COLUMN expired_at, DROP COLUMN marked_at;
