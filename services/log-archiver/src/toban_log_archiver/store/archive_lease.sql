-- The archive lease: one archiver works, and every write of it joins the row with its epoch.

-- name: take
-- Free or silent for too long -> held by this archiver with the next epoch. No row: another archiver works.
UPDATE logs.archive_lease SET epoch = epoch + 1, holder = %(holder)s::text, held = true, beat_at = clock_timestamp()
 WHERE id = 1 AND (NOT held OR beat_at < clock_timestamp() - make_interval(secs => %(lease_seconds)s::double precision))
RETURNING epoch;

-- name: renew
-- Held stays held for another while. No row: it was taken over.
UPDATE logs.archive_lease SET beat_at = clock_timestamp() WHERE id = 1 AND epoch = %(epoch)s::bigint AND held;

-- name: fence
-- The share lock that makes a take-over wait for this transaction. No row: it was taken over.
SELECT 1 FROM logs.archive_lease WHERE id = 1 AND epoch = %(epoch)s::bigint AND held FOR SHARE;

-- name: release
-- Held -> free, with what the pass did. No row: it was taken over.
UPDATE logs.archive_lease
   SET held = false, last_pass_at = clock_timestamp(), last_pass = %(summary)s::text, last_error = %(error)s::text
 WHERE id = 1 AND epoch = %(epoch)s::bigint AND held;

-- name: read
-- The lease as it stands.
SELECT epoch, holder, held, beat_at, last_pass_at, last_pass, last_error FROM logs.archive_lease WHERE id = 1;
