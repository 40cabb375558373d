-- migrate:up
-- Runs by the time of their end, for the picture of the last day, and their events by time, for pages that follow them. Rows are written in that order, so that a page range has a short span of ends and
-- an insert changes the index only when a range is full.
SET LOCAL lock_timeout = '60s';
CREATE INDEX runs_history_finished ON scheduler.runs_history USING brin (finished_at) WITH (pages_per_range = 32, autosummarize = on);
CREATE INDEX job_events_at ON scheduler.job_events USING brin (at) WITH (pages_per_range = 32, autosummarize = on);

-- migrate:down
DROP INDEX scheduler.job_events_at;
DROP INDEX scheduler.runs_history_finished;
