-- name: note
-- One action of an operator.
INSERT INTO scheduler.admin_action_log (actor, action, target, before, after, reason, address, service)
VALUES (%(actor)s::text, %(action)s::text, %(target)s::text, %(before)s::jsonb, %(after)s::jsonb, %(reason)s::text, %(address)s::text,
        %(service)s::text)

-- name: note_all
-- Actions of operators, in the order of a list.
INSERT INTO scheduler.admin_action_log (actor, action, target, before, after, reason, address, service)
SELECT a ->> 'actor', a ->> 'action', a ->> 'target', NULLIF(a -> 'before', 'null'), NULLIF(a -> 'after', 'null'), a ->> 'reason',
       %(address)s::text, %(service)s::text
  FROM jsonb_array_elements(%(actions)s::jsonb) WITH ORDINALITY AS i(a, place)
 ORDER BY place

-- fragment: entry
-- What callers see of a row.
a.id, a.at, a.actor, a.action, a.target, coalesce(a.before::text, '') AS before, coalesce(a.after::text, '') AS after, a.reason, a.address, a.service,
coalesce(a.seq, 0) AS seq, coalesce(a.hash, '') AS hash

-- fragment: fits
-- Rows that fit a filter, empty values being any. An actor includes the tokens of that user; a run is found by its number in a row of several, too.
-- `_word` are patterns for a filter of one word.
(%(actor)s::text = '' OR a.actor = %(actor)s::text OR starts_with(a.actor, %(actor)s::text || ', ') OR a.actor ~* %(actor_word)s::text)
   AND (%(action)s::text = '' OR a.action = %(action)s::text OR a.action ~* %(action_word)s::text)
   AND (%(address)s::text = '' OR a.address = %(address)s::text)
   AND (%(target)s::text = '' OR a.target = %(target)s::text OR starts_with(a.target, %(target)s::text || ' ')
        OR a.target ~* %(target_word)s::text
        OR CASE WHEN %(run)s::bigint IS NOT NULL AND a.after ->> 'runs' ~ '^([0-9]{1,18}(-[0-9]{1,18})?(,|$))+$'
                THEN EXISTS (SELECT 1 FROM string_to_table(a.after ->> 'runs', ',') AS p
                              WHERE %(run)s::bigint BETWEEN split_part(p, '-', 1)::bigint AND split_part(p, '-', -1)::bigint) END)
   AND (%(since)s::timestamptz IS NULL OR a.at >= %(since)s::timestamptz) AND (%(until)s::timestamptz IS NULL OR a.at < %(until)s::timestamptz)

-- name: page
-- Actions that fit a filter, newest first.
SELECT {{entry}}
  FROM scheduler.admin_action_log a
 WHERE a.id < %(start)s::bigint AND {{fits}}
 ORDER BY a.id DESC
 LIMIT %(limit)s::integer

-- name: page_of_oldest
-- Actions that fit a filter, oldest first.
SELECT {{entry}}
  FROM scheduler.admin_action_log a
 WHERE a.id > %(start)s::bigint AND {{fits}}
 ORDER BY a.id
 LIMIT %(limit)s::integer

-- name: chain
-- Gives rows their place in the hash chain; how many.
SELECT scheduler.chain_audit(%(most)s::integer) AS chained

-- name: unchained
-- Rows without a place in the chain, and the age of the oldest one.
SELECT count(*) AS rows, coalesce(greatest(0, extract(epoch FROM clock_timestamp() - min(a.at))), 0)::double precision AS seconds
  FROM scheduler.admin_action_log a
 WHERE a.seq IS NULL

-- name: oldest_unchained
-- The age of the oldest row without a place in the chain; no row when all have one.
SELECT greatest(0, extract(epoch FROM clock_timestamp() - a.at))::double precision AS seconds
  FROM scheduler.admin_action_log a
 WHERE a.seq IS NULL
 ORDER BY a.id
 LIMIT 1

-- name: links
-- Chained rows behind a place in the chain, with its ends as the same snapshot has them; no row when these are missing. `stray` is the lowest number
-- before the beginning of the chain, which no row has. `page` is one value, for a thread to unpack: of each row its number, its hash with its length,
-- and with its length the text that the hash covers, as in `scheduler.chain_audit`. A page has at most so many rows and, beyond its first row, so many
-- bytes of text; `found` counts the rows that the first bound allows. What rows take on disk is bounded before, since a text has to be read whole to be
-- measured.
SELECT m.anchor_seq, m.anchor_hash, m.head_seq, m.head_hash, m.stray, x.found, x.rows, x.page
  FROM (SELECT o.seq AS anchor_seq, o.hash AS anchor_hash, h.seq AS head_seq, h.hash AS head_hash,
               (SELECT min(s.seq) FROM scheduler.admin_action_log s WHERE s.seq <= o.seq) AS stray
          FROM scheduler.audit_chain o JOIN scheduler.audit_chain h ON h.mark = 'head' WHERE o.mark = 'anchor') m
 CROSS JOIN LATERAL (
       SELECT coalesce(max(y.found), 0) AS found, count(*) AS rows,
              string_agg(int8send(y.seq) || int4send(octet_length(y.hash)) || y.hash || int4send(octet_length(y.text)) || y.text, ''
                         ORDER BY y.seq) AS page
         FROM (SELECT a.seq, a.hash, a.found, t.text, sum(octet_length(t.text)) OVER (ORDER BY a.seq) AS bytes,
                      row_number() OVER (ORDER BY a.seq) AS place
                 FROM (SELECT c.*, count(*) OVER () AS found,
                              sum(COALESCE(pg_column_size(c.before), 0) + COALESCE(pg_column_size(c.after), 0)) OVER (ORDER BY c.seq) AS stored,
                              row_number() OVER (ORDER BY c.seq) AS place
                         FROM (SELECT i.* FROM scheduler.admin_action_log i
                                WHERE i.seq > greatest(%(after)s::bigint, m.anchor_seq) ORDER BY i.seq LIMIT %(limit)s::integer) c) a
                CROSS JOIN LATERAL (
                      SELECT convert_to(string_agg(octet_length(convert_to(f, 'UTF8')) || ':' || f, ',' ORDER BY place), 'UTF8') AS text
                        FROM unnest(ARRAY[a.seq::text, a.id::text, (extract(epoch FROM a.at) * 1000000)::bigint::text, a.actor, a.action,
                                          a.target, COALESCE(a.before::text, ''), COALESCE(a.after::text, ''), a.reason, a.address, a.service])
                             WITH ORDINALITY AS i(f, place)) t
                WHERE a.place = 1 OR a.stored <= %(bytes)s::bigint) y
        WHERE y.place = 1 OR y.bytes <= %(bytes)s::bigint) x

-- name: hash_at
-- The hash of a chained row.
SELECT a.hash FROM scheduler.admin_action_log a WHERE a.seq = %(seq)s::bigint

-- name: has_ends
-- Whether the chain has its ends.
SELECT count(*) = 2 AS found FROM scheduler.audit_chain c

-- name: verdict
-- What the last verification found.
SELECT v.problems FROM scheduler.audit_verdict v

-- name: note_verdict
-- What a verification found, in place of the one before.
INSERT INTO scheduler.audit_verdict (problems) VALUES (%(problems)s::bigint)
    ON CONFLICT (id) DO UPDATE SET problems = EXCLUDED.problems, at = now()
