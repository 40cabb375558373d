-- What the archiver that holds the lease writes; each statement runs behind the fence of archive_lease.

-- name: plan
-- An object is about to be put -> planned; one that was begun before is taken over. No row: it is verified already.
INSERT INTO logs.objects AS o (key, log_day, sha256, bytes, token_count, chunk_count, line_count, epoch)
VALUES (%(key)s::text, %(log_day)s::date, %(sha256)b::bytea, %(bytes)s::bigint, %(token_count)s::integer, %(chunk_count)s::integer,
        %(line_count)s::bigint, %(epoch)s::bigint)
ON CONFLICT (key) DO UPDATE SET epoch = EXCLUDED.epoch WHERE o.state <> 'verified'
RETURNING id, state;

-- name: stored
-- planned -> stored: the object store has answered.
UPDATE logs.objects SET state = 'stored', stored_at = now(), epoch = %(epoch)s::bigint WHERE id = %(id)s::bigint AND state = 'planned';

-- name: cover
-- Manifest rows of some chunks; only of those that stand in logs.chunks exactly as they are in the object. The row count says how many.
INSERT INTO logs.manifests (log_day, run_id, token, stream, seq_from, seq_to, line_count, raw_bytes, first_at, last_at,
                            object_id, byte_offset, byte_length, sha256)
SELECT c.log_day, c.run_id, c.token, c.stream, c.seq_from, c.seq_to, c.line_count, c.raw_bytes, c.first_at, c.last_at,
       %(object_id)s::bigint, g.byte_offset, g.byte_length, g.sha256
  FROM unnest(%(run_id)s::bigint[], %(token)s::bigint[], %(stream)s::smallint[], %(seq_from)s::bigint[], %(seq_to)s::bigint[],
              %(line_count)s::integer[], %(byte_offset)s::bigint[], %(byte_length)s::integer[], %(sha256)b::bytea[])
       AS g (run_id, token, stream, seq_from, seq_to, line_count, byte_offset, byte_length, sha256)
-- OFFSET 0: each chunk is looked up by its key. Else the planner may join by SHA-256, and read and hash every chunk of the day.
 CROSS JOIN LATERAL (SELECT * FROM logs.chunks k
                      WHERE k.log_day = %(log_day)s::date AND k.run_id = g.run_id AND k.token = g.token AND k.stream = g.stream
                        AND k.seq_from = g.seq_from AND k.seq_to = g.seq_to AND k.line_count = g.line_count
                      OFFSET 0) c
 WHERE octet_length(c.data) = g.byte_length AND sha256(c.data) = g.sha256
ON CONFLICT DO NOTHING;

-- name: verified
-- stored -> verified, if the manifest has every chunk and every line of the object.
UPDATE logs.objects o SET state = 'verified', verified_at = now(), epoch = %(epoch)s::bigint
 WHERE o.id = %(id)s::bigint AND o.state = 'stored'
   AND (o.chunk_count, o.line_count) = (SELECT count(*), sum(m.line_count) FROM logs.manifests m WHERE m.object_id = o.id);

-- name: forget
-- An unfinished object whose content is not in the bucket, or is not needed any more, is forgotten.
DELETE FROM logs.objects WHERE id = %(id)s::bigint AND state <> 'verified';

-- name: seal
-- open -> sealed for tokens that will not say so themselves; without a known end it is the last line that is here, and incomplete.
UPDATE logs.tokens k
   SET sealed_at = now(), incomplete = (g.last_seq IS NULL),
       last_seq = COALESCE(g.last_seq, (SELECT max(c.seq_to) FROM logs.chunks c
                                         WHERE c.log_day = k.log_day AND c.run_id = k.run_id AND c.token = k.token), 0)
  FROM unnest(%(run_id)s::bigint[], %(token)s::bigint[], %(last_seq)s::bigint[]) AS g (run_id, token, last_seq)
 WHERE k.log_day = %(log_day)s::date AND k.run_id = g.run_id AND k.token = g.token AND k.sealed_at IS NULL;

-- name: drop_day
-- The partition of a day goes when every chunk of it is covered: dropped | absent | uncovered | fenced.
SELECT logs.drop_archived(%(log_day)s::date, %(epoch)s::bigint) AS result;
