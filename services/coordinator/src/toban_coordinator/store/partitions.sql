-- name: ensure
-- Makes the day partitions from yesterday to a week ahead; harmless when they are there.
SELECT scheduler.ensure_partitions((now() AT TIME ZONE 'UTC')::date - 1, (now() AT TIME ZONE 'UTC')::date + 7) AS made
