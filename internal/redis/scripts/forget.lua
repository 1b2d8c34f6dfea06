-- Forgets all queued ids if there are more of them than entries: some entries were lost, and nobody would push them again
-- as long as they are taken to be here. The others may come a second time, which does no harm.
-- KEYS: ready, delayed, ids, lease. Returns 1 if it forgot them.
local entries = redis.call('LLEN', KEYS[1]) + redis.call('ZCARD', KEYS[2])
for _, claim in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do
  entries = entries + redis.call('LLEN', claim)
end
if redis.call('ZCARD', KEYS[3]) <= entries then
  return 0
end
redis.call('UNLINK', KEYS[3])
return 1
