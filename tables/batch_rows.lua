-- Merges values into rows of batch features (the layout: batch_rows.py). Of each name the newer as-of time stays; of equal ones
-- what comes now. A row expires when its newest value is forgotten.
--   KEYS  the mark: fingerprint of the key that the digests are under (`key_marks.py`); then rows, of one hash tag
--   ARGV  fingerprint of ours; how long a value is kept (ms), how many a row may have, the header's version (4 bytes); then the values for each key
-- Answers how many of the values given were older than what is there.
local kept, most, version = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local outdated = 0

-- (key_marks.lua)

local function take(held, order, values, from)
  for at = from, #values, 16 do
    local name, as_of = string.sub(values, at, at + 3), struct.unpack('<d', values, at + 8)
    local before = held[name]
    if before and before.as_of > as_of then
      outdated = outdated + 1
    else
      if not before then
        before = {}
        held[name], order[#order + 1] = before, before
      end
      before.as_of, before.bytes = as_of, string.sub(values, at, at + 15)
    end
  end
end

local refusal = foreign(KEYS[1], ARGV[1])
if refusal then return refusal end

for i = 2, #KEYS do
  local key = KEYS[i]
  local held, order = {}, {}
  local row = redis.call('GET', key)
  if row and #row % 16 == 8 and string.sub(row, 1, 4) == version then
    take(held, order, row, 9)
  end
  take(held, order, ARGV[i + 3], 1)
  table.sort(order, function(one, other) return one.as_of > other.as_of end)
  local values = {}
  for place = 1, math.min(#order, most) do
    values[place] = order[place].bytes
  end
  local expires = string.format('%.0f', order[1].as_of + kept)
  redis.call('SET', key, version .. struct.pack('<I4', #values) .. table.concat(values), 'PXAT', expires)
end
return outdated
