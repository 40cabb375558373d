-- Raises a decimal number and never lowers it. KEYS[1] number, ARGV[1] decimal text. Answers the number that stands.
-- Anything that is no number is overwritten.
local now = redis.pcall('GET', KEYS[1])
if type(now) == 'string' and string.match(now, '^%d+$') and (#now > #ARGV[1] or (#now == #ARGV[1] and now >= ARGV[1])) then
    return now
end
redis.call('SET', KEYS[1], ARGV[1])
return ARGV[1]
