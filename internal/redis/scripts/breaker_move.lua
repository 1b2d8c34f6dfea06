-- Replaces a breaker's record if nobody else did. KEYS: record, audit. ARGV: epoch expected, epoch, age in ms, ms left of
-- the force (empty for none), body, note (empty for none), notes kept, ms the record lives.
-- Returns 1, or 0 when the epoch is another one.
if (redis.call('HGET', KEYS[1], 'epoch') or '0') ~= ARGV[1] then
  return 0
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ends = '0'
if ARGV[4] ~= '' then
  ends = string.format('%.0f', now + tonumber(ARGV[4]))
end
redis.call('HSET', KEYS[1], 'epoch', ARGV[2], 'since', string.format('%.0f', now - tonumber(ARGV[3])), 'ends', ends,
  'body', ARGV[5])
redis.call('PEXPIRE', KEYS[1], ARGV[8])
if ARGV[6] ~= '' then
  redis.call('LPUSH', KEYS[2], string.format('%.0f ', now) .. ARGV[6])
  redis.call('LTRIM', KEYS[2], 0, tonumber(ARGV[7]) - 1)
end
return 1
