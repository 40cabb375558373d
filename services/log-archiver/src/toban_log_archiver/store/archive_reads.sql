-- What the archiver looks at: days, tokens and chunks that are not archived, and what is.

-- name: days
-- Days that have a partition of chunks, the oldest first, and whether they are older than so many days (PostgreSQL's day in UTC).
SELECT d.day, d.day < (now() AT TIME ZONE 'UTC')::date - %(retention_days)s::integer AS due
  FROM (SELECT to_date(right(c.relname, 8), 'YYYYMMDD') AS day
          FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
         WHERE i.inhparent = 'logs.chunks'::regclass AND c.relname ~ '^chunks_[0-9]{8}$') d
 ORDER BY d.day;

-- name: tokens
-- The next tokens of a day, with what of them is not covered; `ready`: sealed, and its lines are here or were waited for. `lines` and
-- `system_chunks` are for those that are not: what a limit left out is counted by lines of stream 3.
SELECT k.run_id, k.token, k.incarnation::text AS incarnation, k.last_seq, k.incomplete, u.chunks, u.bytes, u.lines, u.system_chunks,
       k.sealed_at IS NOT NULL AND (k.incomplete OR u.lines >= k.last_seq
                                    OR k.sealed_at < now() - make_interval(secs => %(wait_seconds)s::double precision)) AS ready
  FROM (SELECT * FROM logs.tokens
         WHERE log_day = %(log_day)s::date AND (run_id, token) > (%(after_run)s::bigint, %(after_token)s::bigint)
         ORDER BY run_id, token LIMIT %(size)s::integer) k
 CROSS JOIN LATERAL (
       SELECT count(*) FILTER (WHERE m.run_id IS NULL) AS chunks, COALESCE(sum(c.line_count), 0)::bigint AS lines,
              count(*) FILTER (WHERE c.stream = 3) AS system_chunks,
              COALESCE(sum(octet_length(c.data)) FILTER (WHERE m.run_id IS NULL), 0)::bigint AS bytes
         FROM logs.chunks c
         LEFT JOIN logs.manifests m ON m.run_id = c.run_id AND m.token = c.token AND m.stream = c.stream AND m.seq_from = c.seq_from
                                   AND m.log_day = c.log_day AND m.seq_to = c.seq_to
        WHERE c.log_day = k.log_day AND c.run_id = k.run_id AND c.token = k.token) u
 ORDER BY k.run_id, k.token;

-- name: chunks
-- The chunks of some tokens that are not covered, without their data: token by token as they were asked for, in the order of their first lines.
SELECT c.run_id, c.token, c.stream, c.seq_from, c.seq_to, c.line_count, c.raw_bytes, octet_length(c.data) AS byte_length
  FROM unnest(%(run_id)s::bigint[], %(token)s::bigint[]) WITH ORDINALITY AS g (run_id, token, position)
  JOIN logs.chunks c ON c.log_day = %(log_day)s::date AND c.run_id = g.run_id AND c.token = g.token
 WHERE NOT EXISTS (SELECT 1 FROM logs.manifests m
                    WHERE m.run_id = c.run_id AND m.token = c.token AND m.stream = c.stream AND m.seq_from = c.seq_from
                      AND m.log_day = c.log_day AND m.seq_to = c.seq_to)
 ORDER BY g.position, c.seq_from, c.stream;

-- name: data
-- The frames of some chunks, in the order in which they were asked for.
SELECT c.data
  FROM unnest(%(run_id)s::bigint[], %(token)s::bigint[], %(stream)s::smallint[], %(seq_from)s::bigint[])
       WITH ORDINALITY AS g (run_id, token, stream, seq_from, position)
-- OFFSET 0: each chunk is looked up by its key, whatever the planner thinks of the table.
 CROSS JOIN LATERAL (SELECT k.data FROM logs.chunks k
                      WHERE k.log_day = %(log_day)s::date AND k.run_id = g.run_id AND k.token = g.token AND k.stream = g.stream
                        AND k.seq_from = g.seq_from
                      OFFSET 0) c
 ORDER BY g.position;

-- name: system_frames
-- The next chunks of the executor's own lines of one token after a position, in order.
SELECT c.seq_from, c.data FROM logs.chunks c
 WHERE c.log_day = %(log_day)s::date AND c.run_id = %(run_id)s::bigint AND c.token = %(token)s::bigint AND c.stream = 3
   AND c.seq_from > %(after)s::bigint
 ORDER BY c.seq_from LIMIT %(size)s::integer;

-- name: open_tokens
-- Tokens of a day that are not sealed, after a position.
SELECT run_id, token FROM logs.tokens
 WHERE log_day = %(log_day)s::date AND sealed_at IS NULL AND (run_id, token) > (%(after_run)s::bigint, %(after_token)s::bigint)
 ORDER BY run_id, token LIMIT %(size)s::integer;

-- name: unfinished
-- Objects that were begun and never verified, the oldest first.
SELECT id, key, log_day, sha256, bytes, state FROM logs.objects WHERE state <> 'verified' ORDER BY id LIMIT %(size)s::integer;

-- name: verified
-- The next verified objects, of one day or of all; expired ones are not expected to be there.
SELECT id, key, log_day, sha256, bytes, state FROM logs.objects
 WHERE state = 'verified' AND expired_at IS NULL AND id > %(after)s::bigint AND (%(log_day)s::date IS NULL OR log_day = %(log_day)s::date)
 ORDER BY id LIMIT %(size)s::integer;

-- name: frames
-- The manifest rows of one object in the order of their places in it.
SELECT run_id, token, stream, seq_from, seq_to, line_count, byte_offset, byte_length, sha256
  FROM logs.manifests WHERE object_id = %(object_id)s::bigint ORDER BY byte_offset;

-- name: stored_day
-- What of one day is in the database: chunks, their bytes, and those that are not covered.
SELECT count(*) AS chunks, COALESCE(sum(octet_length(c.data)), 0)::bigint AS bytes,
       count(*) FILTER (WHERE m.run_id IS NULL) AS open_chunks, count(DISTINCT (c.run_id, c.token)) AS tokens
  FROM logs.chunks c
  LEFT JOIN logs.manifests m ON m.run_id = c.run_id AND m.token = c.token AND m.stream = c.stream AND m.seq_from = c.seq_from
                            AND m.log_day = c.log_day AND m.seq_to = c.seq_to
 WHERE c.log_day = %(log_day)s::date;

-- name: has_open
-- Whether a day has a chunk in the database that is not covered.
SELECT EXISTS (SELECT 1 FROM logs.chunks c
                WHERE c.log_day = %(log_day)s::date
                  AND NOT EXISTS (SELECT 1 FROM logs.manifests m
                                   WHERE m.run_id = c.run_id AND m.token = c.token AND m.stream = c.stream AND m.seq_from = c.seq_from
                                     AND m.log_day = c.log_day AND m.seq_to = c.seq_to)) AS open;

-- name: archived_days
-- What of each day is archived, and what of it has expired, the oldest first.
SELECT log_day, count(*) FILTER (WHERE expired_at IS NULL) AS objects,
       COALESCE(sum(bytes) FILTER (WHERE expired_at IS NULL), 0)::bigint AS bytes,
       COALESCE(sum(token_count) FILTER (WHERE expired_at IS NULL), 0)::bigint AS tokens,
       COALESCE(sum(chunk_count) FILTER (WHERE expired_at IS NULL), 0)::bigint AS chunks,
       COALESCE(sum(line_count) FILTER (WHERE expired_at IS NULL), 0)::bigint AS lines,
       count(*) FILTER (WHERE expired_at IS NOT NULL) AS expired_objects,
       COALESCE(sum(bytes) FILTER (WHERE expired_at IS NOT NULL), 0)::bigint AS expired_bytes
  FROM logs.objects WHERE state = 'verified' GROUP BY log_day ORDER BY log_day;

-- name: volume
-- Bytes of the chunks in the database, and of everything else in schema logs, indexes and TOAST included.
SELECT COALESCE(sum(s.bytes) FILTER (WHERE s.is_chunks), 0)::bigint AS chunks,
       COALESCE(sum(s.bytes) FILTER (WHERE NOT s.is_chunks), 0)::bigint AS bookkeeping
  FROM (SELECT pg_total_relation_size(c.oid) AS bytes,
               EXISTS (SELECT 1 FROM pg_inherits i WHERE i.inhrelid = c.oid AND i.inhparent = 'logs.chunks'::regclass) AS is_chunks
          FROM pg_class c WHERE c.relnamespace = 'logs'::regnamespace AND c.relkind = 'r') s;
