-- One row a token that has sent something, or that ended without a line.

-- name: note
-- Makes the rows of tokens; open, or sealed as incomplete -> sealed for those whose last sequence number is known (the first such seal stays).
INSERT INTO logs.tokens AS k (log_day, run_id, token, incarnation, last_seq, sealed_at)
SELECT g.log_day, g.run_id, g.token, g.incarnation, g.last_seq, CASE WHEN g.last_seq IS NOT NULL THEN now() END
  FROM unnest(%(log_day)s::date[], %(run_id)s::bigint[], %(token)s::bigint[], %(incarnation)s::uuid[], %(last_seq)s::bigint[])
       AS g (log_day, run_id, token, incarnation, last_seq)
ON CONFLICT (run_id, token, log_day) DO UPDATE
   SET last_seq = EXCLUDED.last_seq, sealed_at = EXCLUDED.sealed_at, incomplete = false
 WHERE (k.sealed_at IS NULL OR k.incomplete) AND EXCLUDED.last_seq IS NOT NULL;

-- name: of_run
-- Every token of a run in order, and how long ago (in PostgreSQL's time) it was sealed.
SELECT log_day, run_id, token, last_seq, extract(epoch FROM now() - sealed_at)::double precision AS sealed_seconds
  FROM logs.tokens WHERE run_id = %(run_id)s::bigint ORDER BY token;

-- name: touched
-- Tokens of some runs that have a chunk of these streams within a span of time in the database, by run and token.
SELECT k.log_day, k.run_id, k.token FROM logs.tokens k
 WHERE k.run_id = ANY(%(run_ids)s::bigint[])
   AND EXISTS (SELECT 1 FROM logs.chunks c
                WHERE c.log_day = k.log_day AND c.run_id = k.run_id AND c.token = k.token AND c.stream = ANY(%(streams)s::smallint[])
                  AND (c.last_at >= %(since)s::timestamptz OR %(since)s::timestamptz IS NULL)
                  AND (c.first_at < %(until)s::timestamptz OR %(until)s::timestamptz IS NULL))
 ORDER BY k.run_id, k.token;
