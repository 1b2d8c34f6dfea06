-- Brings back expired claims, makes due entries ready, and moves the first entries into a claim of their own.
-- KEYS: ready, delayed, lease, claim. ARGV: how many, how many bytes, lease in ms.
-- Returns the entries.
--
-- Every move removes before it adds: a server without memory lets a script go on that has removed something, so the
-- queue can be worked off, which is what frees the memory. A script is never cut in two, so the order is safe.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local expiry = string.format('%.0f', now + tonumber(ARGV[3]))
now = string.format('%.0f', now)
local page = 16 -- entries looked at together: some are megabytes

local moved = 0
for _, claim in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, page)) do
  if moved < 100 then
    local items = redis.call('LRANGE', claim, 0, -1)
    redis.call('ZREM', KEYS[3], claim)
    redis.call('UNLINK', claim)
    for i = #items, 1, -1 do -- to the front, in their order
      redis.call('LPUSH', KEYS[1], items[i])
    end
    moved = moved + #items
  end
end

local bytes = 0
moved = 0
while moved < 100 and bytes < 16777216 do
  local due = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, page)
  if #due == 0 then
    break
  end
  redis.call('ZREMRANGEBYRANK', KEYS[2], 0, #due - 1)
  redis.call('RPUSH', KEYS[1], unpack(due))
  moved = moved + #due
  for _, item in ipairs(due) do
    bytes = bytes + #item
  end
end

local most, room = tonumber(ARGV[1]), tonumber(ARGV[2])
local taken, fits = {}, true
bytes = 0
while fits and #taken < most do
  local items = redis.call('LRANGE', KEYS[1], #taken, math.min(#taken + page, most) - 1)
  if #items == 0 then
    break
  end
  for _, item in ipairs(items) do
    bytes = bytes + #item
    if #taken > 0 and bytes > room then
      fits = false
      break
    end
    taken[#taken + 1] = item
  end
end
if #taken > 0 then
  redis.call('LTRIM', KEYS[1], #taken, -1)
  redis.call('RPUSH', KEYS[4], unpack(taken))
  redis.call('ZADD', KEYS[3], expiry, KEYS[4])
end
return taken
