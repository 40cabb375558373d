-- name: withdraw
-- fired → withdrawn: the slots of these runs are free again, for the case that the edited schedule has them too.
WITH input AS MATERIALIZED (
    SELECT * FROM unnest(%(schedule_ids)s::bigint[], %(slots)s::timestamptz[], %(run_ids)s::bigint[], %(messages)s::text[])
                  AS i(schedule_id, slot, run_id, message)
), freed AS (
    DELETE FROM scheduler.run_slots s
     USING input i
     WHERE s.schedule_id = i.schedule_id AND s.slot = i.slot AND s.run_id = i.run_id
    RETURNING i.*
)
UPDATE scheduler.fire_ledger l
   SET outcome = 'withdrawn', run_id = NULL, message = 'run ' || f.run_id || ': ' || f.message
  FROM freed f
 WHERE l.schedule_id = f.schedule_id AND l.first_slot = f.slot AND l.outcome = 'fired'

-- name: skip
-- fired → late | overlap | max_wait: the run of this slot was not to be dispatched any more.
UPDATE scheduler.fire_ledger l SET outcome = i.reason, message = i.message
  FROM unnest(%(schedule_ids)s::bigint[], %(slots)s::timestamptz[], %(run_ids)s::bigint[], %(reasons)s::text[], %(messages)s::text[])
       AS i(schedule_id, slot, run_id, reason, message)
 WHERE l.schedule_id = i.schedule_id AND l.first_slot = i.slot AND l.run_id = i.run_id AND l.outcome = 'fired'

-- name: ahead
-- Skipped stretches that reach beyond a time: slots that were skipped before they came.
SELECT l.schedule_id, l.first_slot
  FROM unnest(%(schedule_ids)s::bigint[]) AS i(id)
  JOIN scheduler.fire_ledger l ON l.schedule_id = i.id
 WHERE l.run_id IS NULL AND l.outcome <> 'withdrawn' AND l.last_slot > %(now)s::timestamptz

-- name: shorten
-- Skipped stretches end earlier: the slots after them are free again.
UPDATE scheduler.fire_ledger l
   SET last_slot = i.last_slot, slots = i.slots
  FROM unnest(%(schedule_ids)s::bigint[], %(firsts)s::timestamptz[], %(lasts)s::timestamptz[], %(slots)s::bigint[])
       AS i(schedule_id, first_slot, last_slot, slots)
 WHERE l.schedule_id = i.schedule_id AND l.first_slot = i.first_slot AND l.run_id IS NULL

-- name: forget
-- Skipped stretches that have not begun are no more: their slots are free again.
DELETE FROM scheduler.fire_ledger l
 USING unnest(%(schedule_ids)s::bigint[], %(firsts)s::timestamptz[]) AS i(schedule_id, first_slot)
 WHERE l.schedule_id = i.schedule_id AND l.first_slot = i.first_slot AND l.run_id IS NULL

-- name: last_fired
-- The latest slots after a time that have runs: of schedules, or of deleted ones of the same names.
SELECT i.id, max(x.slot) AS slot
  FROM unnest(%(ids)s::bigint[], %(names)s::text[]) AS i(id, name)
 CROSS JOIN LATERAL (
       (SELECT l.first_slot AS slot FROM scheduler.fire_ledger l
         WHERE l.schedule_id = i.id AND l.first_slot > %(after)s::timestamptz AND l.run_id IS NOT NULL
         ORDER BY l.first_slot DESC
         LIMIT 1)
       UNION ALL
       (SELECT x.settled_until FROM scheduler.schedules_deleted x
         WHERE x.name = i.name AND x.settled_until > %(after)s::timestamptz)) x
 GROUP BY i.id

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
