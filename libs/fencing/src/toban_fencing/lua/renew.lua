-- A leader renews its lock. KEYS[1] lock, ARGV[1] owner "<epoch>:<worker id>", ARGV[2] TTL in ms, ARGV[3] "1" to take it from a candidate.
-- Answers 1 when the caller holds it. Epochs are 63 bits and Lua numbers are doubles: they are compared as decimal text.
local function lower(a, b)
    if #a ~= #b then
        return #a < #b
    end
    return a < b
end
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then
    local theirs = string.match(owner, '^(%d+):') or '0'
    local mine = string.match(ARGV[1], '^(%d+):')
    if not lower(theirs, mine) or (theirs == '0' and ARGV[3] ~= '1') then
        return 0
    end
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
