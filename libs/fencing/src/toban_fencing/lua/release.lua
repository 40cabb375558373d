-- Gives a lock back. KEYS[1] lock, ARGV[1] owner. Answers 1 when it was the caller's.
if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('DEL', KEYS[1])
end
return 0
