-- Gives a claim another lease. KEYS: lease, claim. ARGV: lease in ms. Returns 1, or 0 when the claim is lost.
-- Removing first, so that it works on a server without memory.
if redis.call('ZREM', KEYS[1], KEYS[2]) == 0 then
  return 0
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], string.format('%.0f', now + tonumber(ARGV[1])), KEYS[2])
return 1
