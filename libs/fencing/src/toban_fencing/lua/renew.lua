-- A leader renews its lock. KEYS[1] lock, ARGV[1] owner "<epoch>:<worker id>", ARGV[2] TTL in ms, ARGV[3] whose lock it takes besides those of
-- older terms: "0" none, "1" a candidate's, "2" whatever is there. Answers 1 when the caller holds it, else the owner that is there, as
-- text that is safe to show. Epochs are 63 bits and Lua numbers are doubles: they are compared as decimal text.
local function lower(a, b)
    if #a ~= #b then
        return #a < #b
    end
    return a < b
end
local found = redis.pcall('GET', KEYS[1])
local owner = type(found) == 'table' and 'a key of another type' or found
if owner and owner ~= ARGV[1] and ARGV[3] ~= '2' then
    local theirs = string.match(owner, '^(%d+):') or '0'
    local mine = string.match(ARGV[1], '^(%d+):')
    if not lower(theirs, mine) or (theirs == '0' and ARGV[3] ~= '1') then
        return (string.gsub(string.sub(owner, 1, 64), '[^%w%p ]', '?'))
    end
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
