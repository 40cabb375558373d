-- What leaves the archive because it is old enough; each statement that writes runs behind the fence of archive_lease.

-- name: days
-- Days before a date whose objects have not expired yet and whose chunks are all out of the database, the oldest first, with what they hold,
-- how many of them are marked and how many have been for so long that they expire.
SELECT o.log_day, count(o.marked_at) AS marked,
       count(*) FILTER (WHERE o.marked_at < now() - make_interval(secs => %(grace_seconds)s::double precision)) AS ready,
       count(*) AS objects, sum(o.bytes)::bigint AS bytes, sum(o.token_count)::bigint AS tokens, sum(o.chunk_count)::bigint AS chunks,
       sum(o.line_count)::bigint AS lines
  FROM logs.objects o
 WHERE o.state = 'verified' AND o.expired_at IS NULL AND o.log_day < %(before)s::date
   AND to_regclass('logs.chunks_' || to_char(o.log_day, 'YYYYMMDD')) IS NULL
 GROUP BY o.log_day ORDER BY o.log_day;

-- name: mark
-- verified -> marked for every object of a day.
UPDATE logs.objects SET marked_at = now(), epoch = %(epoch)s::bigint
 WHERE log_day = %(log_day)s::date AND state = 'verified' AND marked_at IS NULL;

-- name: unmark
-- marked -> verified for objects that are not before the date any more; without a date for all.
UPDATE logs.objects SET marked_at = NULL, epoch = %(epoch)s::bigint
 WHERE marked_at IS NOT NULL AND expired_at IS NULL AND (log_day >= %(before)s::date OR %(before)s::date IS NULL);

-- name: expire
-- marked -> expired for the objects of a day whose mark is old enough.
UPDATE logs.objects SET expired_at = now(), epoch = %(epoch)s::bigint
 WHERE log_day = %(log_day)s::date AND expired_at IS NULL
   AND marked_at < now() - make_interval(secs => %(grace_seconds)s::double precision);

-- name: waiting
-- The next objects that have expired and may still be in the bucket.
SELECT id, key, log_day, bytes, token_count AS tokens, chunk_count AS chunks, line_count AS lines FROM logs.objects
 WHERE expired_at IS NOT NULL AND deleted_at IS NULL AND id > %(after)s::bigint ORDER BY id LIMIT %(size)s::integer;

-- name: deleted
-- expired -> deleted: the object store has answered.
UPDATE logs.objects SET deleted_at = now(), epoch = %(epoch)s::bigint
 WHERE id = %(id)s::bigint AND expired_at IS NOT NULL AND deleted_at IS NULL;

-- name: waiting_count
-- How many objects have expired and may still be in the bucket.
SELECT count(*) AS waiting FROM logs.objects WHERE expired_at IS NOT NULL AND deleted_at IS NULL;

-- name: forgettable
-- Deleted objects of days before a date.
SELECT id FROM logs.objects WHERE deleted_at IS NOT NULL AND log_day < %(before)s::date ORDER BY id LIMIT %(size)s::integer;

-- name: forget_frames
-- Some manifest rows of a deleted object go.
DELETE FROM logs.manifests m
 USING (SELECT f.ctid FROM logs.manifests f JOIN logs.objects o ON o.id = f.object_id
         WHERE o.id = %(id)s::bigint AND o.deleted_at IS NOT NULL LIMIT %(size)s::integer) g
 WHERE m.ctid = g.ctid;

-- name: forget_object
-- And when there are none any more, its own row.
DELETE FROM logs.objects WHERE id = %(id)s::bigint AND deleted_at IS NOT NULL;

-- name: token_days
-- Days before a date that have a partition of tokens, and neither chunks nor objects, the oldest first.
SELECT d.day
  FROM (SELECT to_date(right(c.relname, 8), 'YYYYMMDD') AS day
          FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
         WHERE i.inhparent = 'logs.tokens'::regclass AND c.relname ~ '^tokens_[0-9]{8}$') d
 WHERE d.day < %(before)s::date AND to_regclass('logs.chunks_' || to_char(d.day, 'YYYYMMDD')) IS NULL
   AND NOT EXISTS (SELECT 1 FROM logs.objects o WHERE o.log_day = d.day)
 ORDER BY d.day;

-- name: forget_day
-- The partition of tokens of a day goes when nothing else is left of it: forgotten | absent | kept | fenced.
SELECT logs.forget_day(%(log_day)s::date, %(epoch)s::bigint) AS result;
