-- Brings back the entries of a claim that has no lease: a claim gets both at once, so one of them was lost.
-- KEYS: ready, lease, claim. Returns how many entries came back.
if redis.call('ZSCORE', KEYS[2], KEYS[3]) then
  return 0
end
local items = redis.call('LRANGE', KEYS[3], 0, -1)
redis.call('UNLINK', KEYS[3])
for _, item in ipairs(items) do
  redis.call('RPUSH', KEYS[1], item)
end
return #items
