-- Marks a run as being assigned. KEYS[1] mark, ARGV[1] epoch, ARGV[2] TTL in ms. A higher epoch overwrites. Answers 1 when the caller has it.
local owner = redis.call('GET', KEYS[1])
if owner and (#owner > #ARGV[1] or (#owner == #ARGV[1] and owner > ARGV[1])) then
    return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
