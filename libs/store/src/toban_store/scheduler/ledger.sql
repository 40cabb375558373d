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

-- name: of_schedule
-- The ledger of one schedule, latest slots first.
SELECT l.first_slot, l.last_slot, l.slots, l.outcome, l.run_id, l.message
  FROM scheduler.fire_ledger l
 WHERE l.schedule_id = %(schedule_id)s::bigint
 ORDER BY l.first_slot DESC
 LIMIT %(limit)s::integer
