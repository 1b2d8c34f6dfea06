-- Says for each id whether it is queued. KEYS: ids. ARGV: ids. Returns a 1 or 0 for each.
local has = {}
for i, id in ipairs(ARGV) do
  has[i] = redis.call('ZSCORE', KEYS[1], id) and 1 or 0
end
return has
