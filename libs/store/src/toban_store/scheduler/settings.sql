-- name: stored
-- Every setting that was ever changed.
SELECT s.name, s.value, s.version FROM scheduler.settings s
