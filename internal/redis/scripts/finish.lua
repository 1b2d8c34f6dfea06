-- Ends a claim. KEYS: ready, delayed, ids, lease, claim.
-- ARGV: how many ids are done, those ids, how many indexes to keep, those indexes,
-- then for each entry to queue anew: id, delay in ms, data.
-- Returns 1, or 0 when the claim is lost: then only those of the new entries are added whose id is not queued.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local at = 1
local function list()
  local n = tonumber(ARGV[at])
  local values = {}
  for i = at + 1, at + n do
    values[#values + 1] = ARGV[i]
  end
  at = at + n + 1
  return values
end
local done, keep = list(), list()

local kept = {}
for _, index in ipairs(keep) do
  local item = redis.call('LINDEX', KEYS[5], index)
  if item then
    kept[#kept + 1] = item
  end
end
-- Removing comes first: it works on a server without memory, and lets the rest of the script work too.
local held = redis.call('ZREM', KEYS[4], KEYS[5]) == 1
if held then
  redis.call('UNLINK', KEYS[5])
  if #done > 0 then
    redis.call('ZREM', KEYS[3], unpack(done))
  end
  if #kept > 0 then
    redis.call('RPUSH', KEYS[1], unpack(kept))
  end
end
for i = at, #ARGV, 3 do
  if held or not redis.call('ZSCORE', KEYS[3], ARGV[i]) then
    redis.call('ZADD', KEYS[3], 'NX', string.format('%.0f', now), ARGV[i])
    redis.call('ZADD', KEYS[2], string.format('%.0f', now + tonumber(ARGV[i + 1])), ARGV[i + 2])
  end
end
return held and 1 or 0
