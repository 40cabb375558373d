-- SQL that several files of this folder share.

-- fragment: narrowed
-- The parts of a filter beside those that the index is read by (`by_…`), which would be estimated twice. The parameters are constants of the
-- plan, so an empty part costs nothing.
r.id < %(below)s::bigint
AND (cardinality(%(states)s::text[]) = 0 OR r.state = ANY(%(states)s::text[]::scheduler.run_state[]))
AND (cardinality(%(jobs)s::text[]) = 0 OR r.job_name = ANY(%(jobs)s::text[]))
AND (cardinality(%(workers)s::bigint[]) = 0 OR r.assigned_worker_id = ANY(%(workers)s::bigint[]))
AND (%(origin)s::text = '' OR r.origin = %(origin)s::text)
AND (%(scope)s::text = '' OR r.scope = %(scope)s::text)
AND (%(scope_id)s::text = '' OR r.scope_id = %(scope_id)s::text)
AND (%(schedule)s::text = '' OR r.schedule_name = %(schedule)s::text)
AND (%(active_until)s::timestamptz IS NULL OR r.created_at < %(active_until)s::timestamptz)
AND (cardinality(%(run_ids)s::bigint[]) = 0 OR r.id = ANY(%(run_ids)s::bigint[]))

-- fragment: ended_since
-- A finished run of the span of time, which leaves out older partitions. One that was cancelled ahead of its time only with `ahead`.
(%(active_from)s::timestamptz IS NULL OR r.finished_at >= %(active_from)s::timestamptz) AND (%(ahead)s::boolean OR r.scheduled_for <= now())
