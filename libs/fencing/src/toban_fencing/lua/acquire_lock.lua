-- A candidate tries the lock. KEYS[1] lock, ARGV[1] owner "0:<worker id>", ARGV[2] TTL in ms. Answers 1 when the caller holds it.
-- A key of another type has another owner.
local owner = redis.pcall('GET', KEYS[1])
if owner and owner ~= ARGV[1] then
    return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
