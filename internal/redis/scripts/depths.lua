-- Counts the queue. KEYS: ready, delayed, ids, lease. Returns ready, delayed, claimed, age in ms of the oldest id.
local claimed = 0
for _, claim in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do
  claimed = claimed + redis.call('LLEN', claim)
end
local age = 0
local oldest = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
if #oldest > 0 then
  local time = redis.call('TIME')
  age = time[1] * 1000 + math.floor(time[2] / 1000) - tonumber(oldest[2])
end
return {redis.call('LLEN', KEYS[1]), redis.call('ZCARD', KEYS[2]), claimed, age}
