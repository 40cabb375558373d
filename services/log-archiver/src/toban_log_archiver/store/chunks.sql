-- Chunks of job output: appended once, never changed.

-- name: append
-- Stores chunks; one whose (run, token, stream, seq_from, day) is there already stays as it is. The row count is that of new ones.
INSERT INTO logs.chunks (log_day, run_id, token, stream, seq_from, seq_to, line_count, raw_bytes, first_at, last_at, data)
SELECT * FROM unnest(
    %(log_day)s::date[], %(run_id)s::bigint[], %(token)s::bigint[], %(stream)s::smallint[], %(seq_from)s::bigint[],
    %(seq_to)s::bigint[], %(line_count)s::integer[], %(raw_bytes)s::bigint[], %(first_at)s::timestamptz[],
    %(last_at)s::timestamptz[], %(data)b::bytea[])
ON CONFLICT (run_id, token, stream, seq_from, log_day) DO NOTHING;

-- name: different
-- Those of the given chunks whose place is held by a chunk with another range, so that their lines are not stored.
SELECT g.run_id, g.token, g.stream, g.seq_from, c.seq_to
  FROM unnest(%(log_day)s::date[], %(run_id)s::bigint[], %(token)s::bigint[], %(stream)s::smallint[], %(seq_from)s::bigint[],
              %(seq_to)s::bigint[], %(line_count)s::integer[])
       AS g (log_day, run_id, token, stream, seq_from, seq_to, line_count)
  JOIN logs.chunks AS c USING (run_id, token, stream, seq_from, log_day)
 WHERE (c.seq_to, c.line_count) IS DISTINCT FROM (g.seq_to, g.line_count);

-- name: held
-- Those places of chunks where one is stored, here or in the archive.
SELECT g.run_id, g.token, g.stream, g.seq_from
  FROM unnest(%(log_day)s::date[], %(run_id)s::bigint[], %(token)s::bigint[], %(stream)s::smallint[], %(seq_from)s::bigint[])
       AS g (log_day, run_id, token, stream, seq_from)
 WHERE EXISTS (SELECT 1 FROM logs.chunks c
                WHERE c.log_day = g.log_day AND c.run_id = g.run_id AND c.token = g.token AND c.stream = g.stream AND c.seq_from = g.seq_from)
    OR EXISTS (SELECT 1 FROM logs.manifests m
                WHERE m.log_day = g.log_day AND m.run_id = g.run_id AND m.token = g.token AND m.stream = g.stream AND m.seq_from = g.seq_from);

-- name: page
-- The next chunks of one token in order of their first line, after a position in each stream; three index scans that stop early.
SELECT stream, seq_from, seq_to, data
  FROM ((SELECT stream, seq_from, seq_to, data FROM logs.chunks
          WHERE log_day = %(log_day)s::date AND run_id = %(run_id)s::bigint AND token = %(token)s::bigint
            AND stream = 1 AND seq_from > %(after_1)s::bigint
            AND (last_at >= %(since)s::timestamptz OR %(since)s::timestamptz IS NULL)
            AND (first_at < %(until)s::timestamptz OR %(until)s::timestamptz IS NULL) ORDER BY seq_from LIMIT %(size)s::integer)
        UNION ALL
        (SELECT stream, seq_from, seq_to, data FROM logs.chunks
          WHERE log_day = %(log_day)s::date AND run_id = %(run_id)s::bigint AND token = %(token)s::bigint
            AND stream = 2 AND seq_from > %(after_2)s::bigint
            AND (last_at >= %(since)s::timestamptz OR %(since)s::timestamptz IS NULL)
            AND (first_at < %(until)s::timestamptz OR %(until)s::timestamptz IS NULL) ORDER BY seq_from LIMIT %(size)s::integer)
        UNION ALL
        (SELECT stream, seq_from, seq_to, data FROM logs.chunks
          WHERE log_day = %(log_day)s::date AND run_id = %(run_id)s::bigint AND token = %(token)s::bigint
            AND stream = 3 AND seq_from > %(after_3)s::bigint
            AND (last_at >= %(since)s::timestamptz OR %(since)s::timestamptz IS NULL)
            AND (first_at < %(until)s::timestamptz OR %(until)s::timestamptz IS NULL) ORDER BY seq_from LIMIT %(size)s::integer)) AS c
 ORDER BY seq_from, stream
 LIMIT %(size)s::integer;

-- name: heads_after
-- As page, without the data and for any time.
SELECT stream, seq_from, seq_to, line_count, raw_bytes
  FROM ((SELECT stream, seq_from, seq_to, line_count, raw_bytes FROM logs.chunks
          WHERE log_day = %(log_day)s::date AND run_id = %(run_id)s::bigint AND token = %(token)s::bigint
            AND stream = 1 AND seq_from > %(after_1)s::bigint ORDER BY seq_from LIMIT %(size)s::integer)
        UNION ALL
        (SELECT stream, seq_from, seq_to, line_count, raw_bytes FROM logs.chunks
          WHERE log_day = %(log_day)s::date AND run_id = %(run_id)s::bigint AND token = %(token)s::bigint
            AND stream = 2 AND seq_from > %(after_2)s::bigint ORDER BY seq_from LIMIT %(size)s::integer)
        UNION ALL
        (SELECT stream, seq_from, seq_to, line_count, raw_bytes FROM logs.chunks
          WHERE log_day = %(log_day)s::date AND run_id = %(run_id)s::bigint AND token = %(token)s::bigint
            AND stream = 3 AND seq_from > %(after_3)s::bigint ORDER BY seq_from LIMIT %(size)s::integer)) AS c
 ORDER BY seq_from, stream
 LIMIT %(size)s::integer;

-- name: starts
-- The chunk of each stream that holds a sequence number or is the last one before it.
SELECT s.stream, (SELECT max(c.seq_from) FROM logs.chunks AS c
                   WHERE c.log_day = %(log_day)s::date AND c.run_id = %(run_id)s::bigint AND c.token = %(token)s::bigint
                     AND c.stream = s.stream AND c.seq_from <= %(seq)s::bigint) AS seq_from
  FROM generate_series(1, 3) AS s (stream);

-- name: heads
-- The chunks of one token before a position in each stream, without their data, the last one first.
SELECT stream, seq_from, seq_to, line_count, raw_bytes
  FROM ((SELECT stream, seq_from, seq_to, line_count, raw_bytes FROM logs.chunks
          WHERE log_day = %(log_day)s::date AND run_id = %(run_id)s::bigint AND token = %(token)s::bigint
            AND stream = 1 AND seq_from < %(before_1)s::bigint ORDER BY seq_from DESC LIMIT %(size)s::integer)
        UNION ALL
        (SELECT stream, seq_from, seq_to, line_count, raw_bytes FROM logs.chunks
          WHERE log_day = %(log_day)s::date AND run_id = %(run_id)s::bigint AND token = %(token)s::bigint
            AND stream = 2 AND seq_from < %(before_2)s::bigint ORDER BY seq_from DESC LIMIT %(size)s::integer)
        UNION ALL
        (SELECT stream, seq_from, seq_to, line_count, raw_bytes FROM logs.chunks
          WHERE log_day = %(log_day)s::date AND run_id = %(run_id)s::bigint AND token = %(token)s::bigint
            AND stream = 3 AND seq_from < %(before_3)s::bigint ORDER BY seq_from DESC LIMIT %(size)s::integer)) AS c
 ORDER BY seq_from DESC, stream
 LIMIT %(size)s::integer;

-- name: sizes
-- Lines, bytes and last sequence number that are stored for each token of a run; what the archive has taken over counts there.
SELECT c.token, sum(c.line_count)::bigint AS lines, sum(c.raw_bytes)::bigint AS raw_bytes, max(c.seq_to) AS last_seq
  FROM logs.chunks c
 WHERE c.run_id = %(run_id)s::bigint
   AND NOT EXISTS (SELECT 1 FROM logs.manifests m
                    WHERE m.run_id = c.run_id AND m.token = c.token AND m.stream = c.stream AND m.seq_from = c.seq_from
                      AND m.log_day = c.log_day AND m.seq_to = c.seq_to)
 GROUP BY c.token;
