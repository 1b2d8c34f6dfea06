-- Adds entries whose id is not queued: all of them, or none when they would pass the bound.
-- KEYS: ready, delayed, ids. ARGV: bound, then for each entry: id, delay in ms, data.
-- Returns how many were new, or -1 for a full queue.
local bound = tonumber(ARGV[1])
local fresh, seen = {}, {}
for i = 2, #ARGV, 3 do
  local id = ARGV[i]
  if not seen[id] and not redis.call('ZSCORE', KEYS[3], id) then
    seen[id] = true
    fresh[#fresh + 1] = i
  end
end
if #fresh == 0 then
  return 0
end
-- The ids count what is ready, delayed and claimed, but not what others pushed into the list by hand.
local listed = redis.call('LLEN', KEYS[1]) + redis.call('ZCARD', KEYS[2])
if math.max(redis.call('ZCARD', KEYS[3]), listed) + #fresh > bound then
  return -1
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ids, ready, delayed = {}, {}, {}
for _, i in ipairs(fresh) do
  ids[#ids + 1] = string.format('%.0f', now)
  ids[#ids + 1] = ARGV[i]
  local delay = tonumber(ARGV[i + 1])
  if delay > 0 then
    delayed[#delayed + 1] = string.format('%.0f', now + delay)
    delayed[#delayed + 1] = ARGV[i + 2]
  else
    ready[#ready + 1] = ARGV[i + 2]
  end
end
-- A server without memory refuses the first write, so nothing is half done.
redis.call('ZADD', KEYS[3], unpack(ids))
if #ready > 0 then
  redis.call('RPUSH', KEYS[1], unpack(ready))
end
if #delayed > 0 then
  redis.call('ZADD', KEYS[2], unpack(delayed))
end
return #fresh
