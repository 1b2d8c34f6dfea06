-- Takes one worker's statement about a breaker, and returns the record and what the others stated.
-- KEYS: record, members. ARGV: worker, slots held, wants one more (0 or 1), limit on all slots, lease in ms, deadline of a
-- slot after its lease in ms, gone (0 or 1), ms after which a silent worker is forgotten, ms a record outlives the last
-- exchange, body.
-- The member without a name is when the members became known: before the slots of others that a server without memory
-- of them cannot know are surely free, it grants none.
-- Returns now in ms, epoch, since in ms, end of the force in ms, the record's body, the slots held now, and four for each
-- other worker: name, ms since its statement, wants, body.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local held, limit, lease = tonumber(ARGV[2]), tonumber(ARGV[4]), tonumber(ARGV[5])
local deadline, forget = tonumber(ARGV[6]), tonumber(ARGV[8])

local record = redis.call('HMGET', KEYS[1], 'epoch', 'since', 'ends', 'body')
local answer = {
  string.format('%.0f', now), record[1] or '0', record[2] or '0', record[3] or '0', record[4] or '', '0',
}

local taken = 0 -- by others: also by silent ones, until the last of their probes is over
local rows = redis.call('HGETALL', KEYS[2])
local born = now
if #rows == 0 then
  redis.call('HSET', KEYS[2], '', string.format('%.0f', now))
end
for i = 1, #rows, 2 do
  if rows[i] == '' then
    born = tonumber(rows[i + 1]) or now
    if born > now then -- the clock was set back
      born = now
      redis.call('HSET', KEYS[2], '', string.format('%.0f', now))
    end
  elseif rows[i] ~= ARGV[1] then
    local seen, slots, ends, wants, body = string.match(rows[i + 1], '^(%d+) (%d+) (%d+) (%d) (.*)$')
    local age = now - (tonumber(seen) or 0)
    if seen == nil or age > forget or age < -forget then
      redis.call('HDEL', KEYS[2], rows[i])
    else
      if now <= tonumber(ends) + deadline then
        taken = taken + tonumber(slots)
      end
      answer[#answer + 1] = rows[i]
      answer[#answer + 1] = string.format('%.0f', math.max(0, age))
      answer[#answer + 1] = wants
      answer[#answer + 1] = body
    end
  end
end

if ARGV[7] == '1' then
  redis.call('HDEL', KEYS[2], ARGV[1])
  return answer
end
held = math.min(held, math.max(0, limit - taken)) -- a worker that was alone may run more probes than are left
if ARGV[3] == '1' and taken + held < limit and now > born + lease + deadline then
  held = held + 1
end
answer[6] = string.format('%.0f', held)
redis.call('HSET', KEYS[2], ARGV[1],
  string.format('%.0f %.0f %.0f %s ', now, held, now + lease, ARGV[3]) .. ARGV[10])
redis.call('PEXPIRE', KEYS[2], ARGV[8])
redis.call('PEXPIRE', KEYS[1], ARGV[9])
return answer
