-- name: read_row
-- The leader row, its beat and how old that is, and the clock of PostgreSQL.
SELECT l.epoch, coalesce(l.holder::text, '') AS holder, coalesce(l.worker_id, 0) AS worker_id, l.address, l.node_id, l.resigned_epoch,
       b.beat, b.last_tick_at, b.last_fire_at, clock_timestamp() AS server_time,
       coalesce(extract(epoch FROM clock_timestamp() - b.beaten_at), 0)::double precision AS beat_age
  FROM scheduler.leader l, scheduler.leader_beat b
 WHERE l.id = 1 AND b.id = 1;

-- name: prospect
-- Where the next epoch is taken, and whether the present one was taken there too (by a release that did not note it down: whether this is the
-- settled cluster).
SELECT scheduler.current_timeline() AS timeline, scheduler.current_system_id() AS system_id,
       scheduler.current_database_oid()::bigint AS database,
       EXISTS (SELECT 1 FROM scheduler.leader l
                WHERE l.id = 1 AND coalesce(l.term_timeline, l.settled_timeline) = scheduler.current_timeline()
                  AND coalesce(l.term_system_id, l.settled_system_id) = scheduler.current_system_id()
                  AND coalesce(l.term_database, scheduler.current_database_oid()) = scheduler.current_database_oid()) AS same_cluster;

-- name: take_over
-- leader epoch observed -> next, and the beat with it; no row when anybody else was first, the beat moved, or the cluster is another one.
WITH won AS (
    UPDATE scheduler.leader
       SET epoch = %(epoch)s::bigint, holder = %(holder)s::uuid, worker_id = %(worker_id)s::bigint, address = %(address)s::text,
           node_id = %(node_id)s::text, taken_at = now(), term_timeline = %(timeline)s::bigint,
           term_system_id = %(system_id)s::text, term_database = scheduler.current_database_oid()
     WHERE id = 1 AND epoch = %(observed)s::bigint AND epoch < %(epoch)s::bigint
       AND scheduler.current_timeline() = %(timeline)s::bigint AND scheduler.current_system_id() = %(system_id)s::text
       AND scheduler.current_database_oid()::bigint = %(database)s::bigint
       AND EXISTS (SELECT 1 FROM scheduler.leader_beat WHERE id = 1 AND beat = %(beat)s::bigint)
 RETURNING epoch, scheduler.is_settled(leader) AS settled
), moved AS (
    UPDATE scheduler.leader_beat b
       SET epoch = won.epoch, beat = b.beat + 1, beaten_at = clock_timestamp(), last_tick_at = NULL
      FROM won WHERE b.id = 1
 RETURNING b.beat
)
SELECT won.epoch, won.settled, moved.beat, clock_timestamp() AS server_time FROM won, moved;

-- name: beat
-- Beat of a term: no row when the epoch has moved on. With it, whom the leader row names.
UPDATE scheduler.leader_beat
   SET beat = beat + 1, beaten_at = clock_timestamp(), last_tick_at = coalesce(%(last_tick_at)s::timestamptz, last_tick_at),
       last_fire_at = greatest(%(last_fire_at)s::timestamptz, last_fire_at)
 WHERE id = 1 AND epoch = %(epoch)s::bigint
RETURNING beat, demote_epoch = epoch AS demoted, clock_timestamp() AS server_time, scheduler.current_timeline() AS timeline,
          scheduler.current_system_id() AS system_id, scheduler.current_database_oid()::bigint AS database,
          coalesce((SELECT l.holder::text FROM scheduler.leader l WHERE l.id = 1 AND l.epoch = %(epoch)s::bigint), '') AS holder;

-- name: raise_epoch
-- epoch observed -> a higher one that no leader has, in place of the present leader, with the beat, as if resigned; and settled -> unsettled.
-- No row when the epoch has moved on.
WITH raised AS (
    UPDATE scheduler.leader
       SET epoch = %(epoch)s::bigint, resigned_epoch = %(epoch)s::bigint, settled_system_id = '',
           term_timeline = scheduler.current_timeline(), term_system_id = scheduler.current_system_id(),
           term_database = scheduler.current_database_oid()
     WHERE id = 1 AND epoch = %(observed)s::bigint AND epoch < %(epoch)s::bigint
 RETURNING epoch
)
UPDATE scheduler.leader_beat b SET epoch = raised.epoch, beat = b.beat + 1, last_tick_at = NULL FROM raised WHERE b.id = 1;

-- name: demote
-- demote_epoch -> epoch: its leader sees it with its next beat and steps down; no row when another epoch leads.
UPDATE scheduler.leader_beat SET demote_epoch = epoch WHERE id = 1 AND epoch = %(epoch)s::bigint;

-- name: resign
-- resigned_epoch -> epoch: evidence for the others while it equals the epoch.
UPDATE scheduler.leader SET resigned_epoch = epoch WHERE id = 1 AND epoch = %(epoch)s::bigint;

-- name: settle
-- The cluster of this term has been seen for a whole lease (fenced).
UPDATE scheduler.leader SET settled_system_id = %(system_id)s::text, settled_timeline = %(timeline)s::bigint,
       settled_database = %(database)s::bigint::oid
 WHERE id = 1;

-- name: longest_lease
-- The longest lease that an executor whose row is here may still hold, milliseconds.
SELECT coalesce(max(lease_ms), 0)::integer AS lease_ms FROM scheduler.executors WHERE state <> 'off';
