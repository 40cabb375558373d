-- Marks runs as being assigned. KEYS marks, ARGV[1] epoch, ARGV[2] TTL in ms. A higher epoch overwrites. Answers 1 for each that the caller has.
local answers = {}
for number, key in ipairs(KEYS) do
    local owner = redis.call('GET', key)
    if owner and (#owner > #ARGV[1] or (#owner == #ARGV[1] and owner > ARGV[1])) then
        answers[number] = 0
    else
        redis.call('SET', key, ARGV[1], 'PX', ARGV[2])
        answers[number] = 1
    end
end
return answers
