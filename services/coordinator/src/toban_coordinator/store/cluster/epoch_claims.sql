-- name: facts
-- What a claim is measured by: the leader row, and the incarnation that a proof names (nulls when it has no row here).
SELECT l.epoch, l.cluster_id::text AS cluster_id, scheduler.is_settled(l) AS settled, extract(epoch FROM clock_timestamp())::bigint AS server_time,
       e.grant_seq, e.instance
  FROM scheduler.leader l
  LEFT JOIN scheduler.executors e ON e.incarnation = %(incarnation)s::uuid
 WHERE l.id = 1;

-- name: note
-- An executor that was refused. At most 100 stay, the newest, for a day.
WITH room AS (
    DELETE FROM scheduler.epoch_claims c
     WHERE c.instance <> %(instance)s::text
       AND (c.last_at < now() - interval '1 day'
            OR c.instance IN (SELECT o.instance FROM scheduler.epoch_claims o WHERE o.instance <> %(instance)s::text
                               ORDER BY o.last_at DESC OFFSET 99))
)
INSERT INTO scheduler.epoch_claims (instance, node_id, epoch, reason)
VALUES (%(instance)s::text, %(node_id)s::text, %(epoch)s::bigint, %(reason)s::text)
ON CONFLICT (instance) DO UPDATE SET node_id = excluded.node_id, epoch = excluded.epoch, reason = excluded.reason, last_at = now();

-- name: forget
-- Claims that the leader's epoch covers.
DELETE FROM scheduler.epoch_claims c USING scheduler.leader l WHERE l.id = 1 AND c.epoch <= l.epoch;

-- name: refused
-- Executors that were refused within the last hour and are still above the leader's epoch, newest first.
SELECT c.instance, c.node_id, c.epoch, c.reason, extract(epoch FROM now() - c.last_at)::double precision AS age
  FROM scheduler.epoch_claims c, scheduler.leader l
 WHERE l.id = 1 AND c.epoch > l.epoch AND c.last_at > now() - interval '1 hour'
 ORDER BY c.last_at DESC, c.instance
 LIMIT 100;
