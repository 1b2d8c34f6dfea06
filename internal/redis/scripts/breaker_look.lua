-- Returns what is known of a breaker, as breaker_exchange does for a worker without slots. KEYS: record, members.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local record = redis.call('HMGET', KEYS[1], 'epoch', 'since', 'ends', 'body')
local answer = {
  string.format('%.0f', now), record[1] or '0', record[2] or '0', record[3] or '0', record[4] or '', '0',
}
local rows = redis.call('HGETALL', KEYS[2])
for i = 1, #rows, 2 do
  local seen, wants, body = string.match(rows[i + 1], '^(%d+) %d+ %d+ (%d) (.*)$')
  if seen ~= nil then
    answer[#answer + 1] = rows[i]
    answer[#answer + 1] = string.format('%.0f', math.max(0, now - tonumber(seen)))
    answer[#answer + 1] = wants
    answer[#answer + 1] = body
  end
end
return answer
