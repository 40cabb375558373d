-- name: events
-- Events of runs of the last seconds, in no order.
SELECT v.run_id, v.at, v.type
  FROM scheduler.job_events v
 WHERE v.at >= clock_timestamp() - make_interval(secs => %(window)s)
 LIMIT %(limit)s::integer;

-- name: marks
-- Who leads; the executors that are not off, and what is told of them; the last change by a person or a program of theirs.
SELECT concat_ws(' ', l.epoch, l.worker_id, l.resigned_epoch) AS leader,
       (SELECT concat_ws(' ', count(*), sum(hashtextextended(concat_ws(' ', e.worker_id, e.state, e.free_slots, e.slots), 0)::numeric))
          FROM scheduler.executors e WHERE e.state <> 'off') AS executors,
       (SELECT max(a.id) FROM scheduler.admin_action_log a) AS audit
  FROM scheduler.leader l;
