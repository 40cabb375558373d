-- name: events
-- Events of runs of the last seconds, in no order: stored ones, and those that follow from the rows of runs (as in view run_events). Of live runs
-- the newest ids are read: of more of them than that within the window, those that have ended exceed the limit with the others.
SELECT e.run_id, e.at, e.type
  FROM (SELECT v.run_id, v.at, v.type
          FROM scheduler.job_events v
         WHERE v.at >= now() - make_interval(secs => %(window)s)
        UNION ALL
        SELECT r.id, r.created_at, 'created'
          FROM scheduler.runs_live r
         WHERE r.id > pg_sequence_last_value('scheduler.run_id_seq') - 2 * %(limit)s::integer
           AND r.created_at >= now() - make_interval(secs => %(window)s)
        UNION ALL
        SELECT r.id, r.dispatched_at, 'dispatched'
          FROM scheduler.runs_live r
         WHERE r.state IN ('ASSIGNED', 'CANCEL_REQUESTED', 'ORPHANED') AND r.dispatched_at >= now() - make_interval(secs => %(window)s)
        UNION ALL
        SELECT h.id, h.finished_at, 'ended'
          FROM scheduler.runs_history h
         WHERE h.finished_at >= now() - make_interval(secs => %(window)s)) e
 LIMIT %(limit)s::integer;

-- name: marks
-- Who leads; the executors that are not off, and what is told of them; the last change by a person or a program of theirs.
SELECT concat_ws(' ', l.epoch, l.worker_id, l.resigned_epoch) AS leader,
       (SELECT concat_ws(' ', count(*), sum(hashtextextended(concat_ws(' ', e.worker_id, e.state, e.free_slots, e.slots), 0)::numeric))
          FROM scheduler.executors e WHERE e.state <> 'off') AS executors,
       (SELECT max(a.id) FROM scheduler.admin_action_log a) AS audit
  FROM scheduler.leader l;
