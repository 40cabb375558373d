-- Chunks as readers find them in the archive: what the manifest knows, and where the frames are. Expired objects are passed over.

-- name: page
-- As the page of logs.chunks: the next chunks of one token after a position in each stream, with the places of their frames.
SELECT c.stream, c.seq_from, c.seq_to, o.key, c.byte_offset, c.byte_length, c.sha256
  FROM (SELECT * FROM unnest(%(streams)s::smallint[], %(after)s::bigint[]) AS s (stream, after)
         CROSS JOIN LATERAL (
               SELECT m.seq_from, max(m.seq_to) AS seq_to FROM logs.manifests m
                WHERE m.run_id = %(run_id)s::bigint AND m.token = %(token)s::bigint AND m.log_day = %(log_day)s::date
                  AND m.stream = s.stream AND m.seq_from > s.after
                  AND (m.last_at >= %(since)s::timestamptz OR %(since)s::timestamptz IS NULL)
                  AND (m.first_at < %(until)s::timestamptz OR %(until)s::timestamptz IS NULL)
                  AND NOT EXISTS (SELECT 1 FROM logs.objects x WHERE x.id = m.object_id AND x.expired_at IS NOT NULL)
                GROUP BY m.seq_from ORDER BY m.seq_from LIMIT %(size)s::integer) f
         ORDER BY f.seq_from, s.stream LIMIT %(size)s::integer) p
  JOIN logs.manifests c ON c.run_id = %(run_id)s::bigint AND c.token = %(token)s::bigint AND c.log_day = %(log_day)s::date
                       AND c.stream = p.stream AND c.seq_from = p.seq_from AND c.seq_to = p.seq_to
  JOIN logs.objects o ON o.id = c.object_id
 ORDER BY c.seq_from, c.stream;

-- name: starts
-- The chunk of each stream that holds a sequence number or is the last one before it.
SELECT s.stream, (SELECT m.seq_from FROM logs.manifests AS m
                   WHERE m.log_day = %(log_day)s::date AND m.run_id = %(run_id)s::bigint AND m.token = %(token)s::bigint
                     AND m.stream = s.stream AND m.seq_from <= %(seq)s::bigint
                     AND NOT EXISTS (SELECT 1 FROM logs.objects x WHERE x.id = m.object_id AND x.expired_at IS NOT NULL)
                   ORDER BY m.seq_from DESC LIMIT 1) AS seq_from
  FROM generate_series(1, 3) AS s (stream);

-- name: heads
-- The chunks of one token before a position, without their data, the last one first.
SELECT c.stream, c.seq_from, c.seq_to, c.line_count, c.raw_bytes
  FROM unnest(%(streams)s::smallint[]) AS s (stream)
 CROSS JOIN LATERAL (
       SELECT DISTINCT ON (m.seq_from) m.stream, m.seq_from, m.seq_to, m.line_count, m.raw_bytes FROM logs.manifests m
        WHERE m.run_id = %(run_id)s::bigint AND m.token = %(token)s::bigint AND m.log_day = %(log_day)s::date
          AND m.stream = s.stream AND m.seq_from < %(before)s::bigint
          AND NOT EXISTS (SELECT 1 FROM logs.objects x WHERE x.id = m.object_id AND x.expired_at IS NOT NULL)
        ORDER BY m.seq_from DESC, m.seq_to DESC LIMIT %(size)s::integer) c
 ORDER BY c.seq_from DESC, c.stream
 LIMIT %(size)s::integer;

-- name: heads_after
-- As page for any time, without the places of the frames.
SELECT c.stream, c.seq_from, c.seq_to, c.line_count, c.raw_bytes
  FROM unnest(%(streams)s::smallint[], %(after)s::bigint[]) AS s (stream, after)
 CROSS JOIN LATERAL (
       SELECT DISTINCT ON (m.seq_from) m.stream, m.seq_from, m.seq_to, m.line_count, m.raw_bytes FROM logs.manifests m
        WHERE m.run_id = %(run_id)s::bigint AND m.token = %(token)s::bigint AND m.log_day = %(log_day)s::date
          AND m.stream = s.stream AND m.seq_from > s.after
          AND NOT EXISTS (SELECT 1 FROM logs.objects x WHERE x.id = m.object_id AND x.expired_at IS NOT NULL)
        ORDER BY m.seq_from, m.seq_to DESC LIMIT %(size)s::integer) c
 ORDER BY c.seq_from, c.stream
 LIMIT %(size)s::integer;

-- name: sizes
-- Lines, bytes and last sequence number in the archive for each token of a run.
SELECT m.token, sum(m.line_count)::bigint AS lines, sum(m.raw_bytes)::bigint AS raw_bytes, max(m.seq_to) AS last_seq
  FROM logs.manifests m JOIN logs.objects o ON o.id = m.object_id
 WHERE m.run_id = %(run_id)s::bigint AND o.expired_at IS NULL GROUP BY m.token;

-- name: places
-- The objects of each token of a run, in the order of their first lines.
SELECT m.token, o.key FROM logs.manifests m JOIN logs.objects o ON o.id = m.object_id
 WHERE m.run_id = %(run_id)s::bigint AND o.expired_at IS NULL
 GROUP BY m.token, o.key ORDER BY m.token, min(m.seq_from), o.key;

-- name: expired
-- Lines of each token of some runs that are gone by now.
SELECT m.run_id, m.token, sum(m.line_count)::bigint AS lines
  FROM logs.manifests m JOIN logs.objects o ON o.id = m.object_id
 WHERE m.run_id = ANY(%(run_ids)s::bigint[]) AND o.expired_at IS NOT NULL
   -- Asked once and before the rest, which is dear for a large log: has anything of these days expired?
   AND EXISTS (SELECT 1 FROM logs.tokens k JOIN logs.objects x ON x.log_day = k.log_day AND x.expired_at IS NOT NULL
                WHERE k.run_id = ANY(%(run_ids)s::bigint[]))
 GROUP BY m.run_id, m.token;

-- name: has_expired
-- Whether an object has expired; what is not written down any more has.
SELECT NOT EXISTS (SELECT 1 FROM logs.objects WHERE key = %(key)s::text AND expired_at IS NULL) AS expired;

-- name: touched
-- Tokens of some runs that have a chunk of these streams within a span of time in the archive, by run and token.
SELECT k.log_day, k.run_id, k.token FROM logs.tokens k
 WHERE k.run_id = ANY(%(run_ids)s::bigint[])
   AND EXISTS (SELECT 1 FROM logs.manifests m
                WHERE m.run_id = k.run_id AND m.token = k.token AND m.log_day = k.log_day AND m.stream = ANY(%(streams)s::smallint[])
                  AND (m.last_at >= %(since)s::timestamptz OR %(since)s::timestamptz IS NULL)
                  AND (m.first_at < %(until)s::timestamptz OR %(until)s::timestamptz IS NULL)
                  AND NOT EXISTS (SELECT 1 FROM logs.objects x WHERE x.id = m.object_id AND x.expired_at IS NOT NULL))
 ORDER BY k.run_id, k.token;
