-- name: hold_alone
-- One renewal at a time, until the transaction ends.
SELECT pg_advisory_xact_lock(hashtext('scheduler.executor_certificates'))

-- name: find
-- A certificate of a machine: those that it was renewed from, itself first, as far as they are kept; when it was renewed first; whether
-- another certificate that was renewed from the same one was renewed.
WITH RECURSIVE line AS (
    SELECT c.serial, c.parent, 0 AS depth FROM scheduler.executor_certificates c WHERE c.serial = %(serial)s::text
    UNION ALL
    SELECT c.serial, c.parent, l.depth + 1 FROM line l JOIN scheduler.executor_certificates c ON c.serial = l.parent
)
SELECT c.serial, c.invite, c.machine, c.signed_at, c.ends_at, now() AS now,
       (SELECT array_agg(l.serial ORDER BY l.depth) FROM line l) AS line,
       (SELECT min(r.signed_at) FROM scheduler.executor_certificates r WHERE r.parent = c.serial) AS renewed_at,
       EXISTS (SELECT 1
                 FROM scheduler.executor_certificates s
                 JOIN scheduler.executor_certificates r ON r.parent = s.serial
                WHERE s.parent = c.parent AND s.serial <> c.serial) AS is_overtaken
  FROM scheduler.executor_certificates c
 WHERE c.serial = %(serial)s::text

-- name: add
-- ∅ → a certificate.
INSERT INTO scheduler.executor_certificates (serial, parent, executor_group, invite, machine, ends_at)
VALUES (%(serial)s::text, %(parent)s::text, %(group)s::text, %(invite)s::bigint, %(machine)s::text, %(ends_at)s::timestamptz)

-- name: forget
-- Those that are over for long, once none that was renewed from them is good: until then a denial of them counts for it.
DELETE FROM scheduler.executor_certificates c
 WHERE c.ends_at < now() - interval '30 days'
   AND NOT EXISTS (SELECT 1 FROM scheduler.executor_certificates r WHERE r.parent = c.serial AND r.ends_at > now())
