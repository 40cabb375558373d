-- name: withdraw
-- fired → withdrawn: the slots of these runs are free again, for the case that the edited schedule has them too.
WITH freed AS (
    DELETE FROM scheduler.run_slots s WHERE s.schedule_id = %(schedule_id)s::bigint AND s.run_id = ANY(%(run_ids)s::bigint[])
    RETURNING s.slot, s.run_id
)
UPDATE scheduler.fire_ledger l
   SET outcome = 'withdrawn', run_id = NULL, message = 'run ' || f.run_id || ': ' || %(message)s::text
  FROM freed f
 WHERE l.schedule_id = %(schedule_id)s::bigint AND l.first_slot = f.slot AND l.outcome = 'fired'

-- name: ahead
-- Skipped stretches that reach beyond a time: slots that were skipped before they came.
SELECT l.first_slot FROM scheduler.fire_ledger l
 WHERE l.schedule_id = %(schedule_id)s::bigint AND l.run_id IS NULL AND l.outcome <> 'withdrawn' AND l.last_slot > %(now)s::timestamptz

-- name: shorten
-- A skipped stretch ends earlier: the slots after it are free again.
UPDATE scheduler.fire_ledger l SET last_slot = %(last)s::timestamptz, slots = %(slots)s::bigint
 WHERE l.schedule_id = %(schedule_id)s::bigint AND l.first_slot = %(first)s::timestamptz AND l.run_id IS NULL

-- name: forget
-- A skipped stretch that has not begun is no more: its slots are free again.
DELETE FROM scheduler.fire_ledger l
 WHERE l.schedule_id = %(schedule_id)s::bigint AND l.first_slot = %(first)s::timestamptz AND l.run_id IS NULL

-- name: last_fired
-- The latest slot after a time that has a run: of a schedule, or of a deleted one of the same name.
SELECT max(x.slot) AS slot
  FROM ((SELECT l.first_slot AS slot FROM scheduler.fire_ledger l
          WHERE l.schedule_id = %(schedule_id)s::bigint AND l.first_slot > %(after)s::timestamptz AND l.outcome = 'fired'
          ORDER BY l.first_slot DESC
          LIMIT 1)
        UNION ALL
        (SELECT x.settled_until FROM scheduler.schedules_deleted x
          WHERE x.name = %(name)s::text AND x.settled_until > %(after)s::timestamptz)) x

-- name: page
-- The ledger of a name, deleted schedules included, latest slots first, below a cursor. Slots to come are not told yet.
WITH ids AS (
    SELECT s.id FROM scheduler.schedules s WHERE s.name = %(name)s::text
    UNION ALL
    SELECT x.id FROM scheduler.schedules_deleted x WHERE x.name = %(name)s::text
)
SELECT p.*
  FROM ids
 CROSS JOIN LATERAL (
    SELECT l.schedule_id, l.first_slot, l.last_slot, l.slots, l.outcome, l.run_id, l.message, l.created_at
      FROM scheduler.fire_ledger l
     WHERE l.schedule_id = ids.id AND (l.first_slot, l.schedule_id) < (%(below_slot)s::timestamptz, %(below_id)s::bigint)
       AND l.first_slot <= now()
     ORDER BY l.first_slot DESC
     LIMIT %(limit)s::integer) p
 ORDER BY p.first_slot DESC, p.schedule_id DESC
 LIMIT %(limit)s::integer

-- name: known
-- Whether there is or was a schedule of this name.
SELECT EXISTS (SELECT 1 FROM scheduler.schedules s WHERE s.name = %(name)s::text)
    OR EXISTS (SELECT 1 FROM scheduler.schedules_deleted x WHERE x.name = %(name)s::text) AS known
