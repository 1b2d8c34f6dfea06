-- Takes one worker's report about something the fleet shares, and returns what it may hold. internal/quota tells the
-- protocol; quota.Table is the same in Go, and the tests compare the two.
-- KEYS: table, a hash: worker → its row; '' → the head. ARGV: worker, seq, held, want, most, cap, hold in ms, gone (0 or 1),
-- step, pass and turn in ms, largest cap, ms the table outlives the last report.
-- head: run of the server, its clock at the last report, clock, sure, passed (ms), cap, allotted, rows.
-- row: seq, until (ms), cap, want, most, amount, share.
-- Returns stale (0 or 1), grant, cap, allotted, workers, unsure (0 or 1).
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
if run == nil then
  return redis.error_reply('NORUN the server does not tell its run_id')
end
local me = ARGV[1]
local seq, held, want, most = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local mycap, hold, gone = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8] == '1'
local step, pass, turn, largest = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])

local stored = redis.call('HMGET', KEYS[1], '', me)
local was, last, clock, sure, passed, cap, allotted, rows =
  string.match(stored[1] or '', '^(%w+) (%d+) (%d+) (%d+) (-?%d+) (%d+) (-?%d+) (%d+)$')
if was ~= run then -- no table, or one of an earlier run, which may have missed what was granted since
  redis.call('DEL', KEYS[1])
  stored[2] = false
  last, clock, sure, passed, cap, allotted, rows = now, 0, hold, -pass, 0, 0, 0
end
last, clock, sure, passed = tonumber(last), tonumber(clock), tonumber(sure), tonumber(passed)
cap, allotted, rows = tonumber(cap), tonumber(allotted), tonumber(rows)
clock = clock + math.min(math.max(now - last, 0), step)

local function parse(text)
  local s, u, c, w, m, a, p = string.match(text or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
  if s == nil then return nil end
  return {
    seq = tonumber(s), ends = tonumber(u), cap = tonumber(c), want = tonumber(w), most = tonumber(m), amount = tonumber(a),
    share = tonumber(p),
  }
end
local function text(w)
  return string.format('%.0f %.0f %.0f %.0f %.0f %.0f %.0f', w.seq, w.ends, w.cap, w.want, w.most, w.amount, w.share)
end
local function finish(stale, grant)
  redis.call('HSET', KEYS[1], '', string.format('%s %.0f %.0f %.0f %.0f %.0f %.0f %.0f',
    run, now, clock, sure, passed, cap, allotted, rows))
  redis.call('PEXPIRE', KEYS[1], ARGV[13])
  return { stale, grant, cap, allotted, rows, clock < sure and 1 or 0 }
end

local row = parse(stored[2])
if row ~= nil and seq <= row.seq then
  return finish(1, 0)
end
if clock < sure then
  sure = math.max(sure, hold)
end
allotted = allotted + held - (row and row.amount or 0)
if gone and held == 0 then
  if row ~= nil then
    redis.call('HDEL', KEYS[1], me)
    rows = rows - 1
  end
  return finish(0, 0)
end
local fresh = row == nil
row = { seq = seq, ends = clock + hold, cap = mycap, want = want, most = most, amount = held, share = row and row.share or 0 }
if fresh then
  rows = rows + 1
end

-- Gives out up to n to those who need some, as evenly as their needs allow, and returns what is left. Needs of alike and
-- more count as one.
local function fill(parts, n, alike)
  table.sort(parts, function(a, b)
    local x, y = math.min(a.need, alike), math.min(b.need, alike)
    if x ~= y then return x < y end
    return a.place < b.place
  end)
  for i, p in ipairs(parts) do
    local give = math.min(p.need, math.floor(n / (#parts - i + 1)))
    p.share = p.share + give
    n = n - give
  end
  return n
end

local since = clock - passed
if since >= pass or fresh and since >= pass / 5 or mycap < cap then -- divide anew
  passed, allotted, cap, rows = clock, 0, largest, 0
  local all, parts = redis.call('HGETALL', KEYS[1]), {}
  local function count(name, w)
    if w == nil or w.ends < clock then
      redis.call('HDEL', KEYS[1], name)
    else
      allotted, cap, rows = allotted + w.amount, math.min(cap, w.cap), rows + 1
      parts[rows] = { name = name, row = w, need = math.min(w.want, w.most), share = 0 }
    end
  end
  for i = 1, #all, 2 do
    if all[i] ~= '' and all[i] ~= me then
      count(all[i], parse(all[i + 1]))
    end
  end
  count(me, row)
  table.sort(parts, function(a, b) return a.name < b.name end)
  local at, alike = 0, largest
  if cap < rows then -- less than one for each: in turns, however much more than one is needed
    at, alike = math.floor(clock / turn), 2
  end
  for i, p in ipairs(parts) do
    p.place = (i - 1 + at) % rows
  end
  local left = fill(parts, cap, alike)
  for _, p in ipairs(parts) do
    p.need = math.max(0, p.row.most - p.row.want)
  end
  fill(parts, left, largest)
  for _, p in ipairs(parts) do
    if p.row.share ~= p.share then
      p.row.share = p.share
      if p.name ~= me then
        redis.call('HSET', KEYS[1], p.name, text(p.row))
      end
    end
  end
end

local grant = row.amount
if gone then
  grant = 0
elseif clock < sure then -- holders are heard, and nobody gets more
  grant = row.amount
elseif row.amount > row.share then
  grant = row.share -- the amount falls when the worker says that it holds less
elseif row.amount < row.share then
  local more = math.min(row.share - row.amount, math.max(0, cap - allotted))
  row.amount, allotted = row.amount + more, allotted + more
  grant = row.amount
end
redis.call('HSET', KEYS[1], me, text(row))
return finish(0, grant)
