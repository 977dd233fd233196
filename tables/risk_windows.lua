#!lua name=assay_risk_windows

-- The rows of risk in Redis or Valkey 7+: what became known of an entity's transactions, by the time of the transaction.
--
-- One call applies the changes of one shard. `risk_call.py` writes its payload and `risk_layout.py` reads the rows.
--
--   FCALL assay_learn N KEYS... FINGERPRINT PAYLOAD
--   KEYS[1]    hash: source partition -> last offset applied in this shard
--   KEYS[2]    the mark: fingerprint of the key that the digests are under (`key_marks.py`)
--   KEYS[3..]  the rows of the distinct entities of this call, in the order that the payload's indexes count
--
-- The answer has a double for each change and entity in the payload's order: how many changes the row has seen by then.
-- A change whose offset is not beyond the last one applied alters nothing and is answered with the row as it stands.
-- All is computed before anything is written, so that an error leaves everything as it was.
-- A row's clock is the latest time of a transaction so far and never moves back. What lies too far behind it for a ring of
-- tiles is never in that ring, neither a change nor its reversal, so what is taken back leaves exactly nothing.

local HEADER = '<ddI1I1I1xxxxx' -- sequence, clock (ms), tiles of minutes, of hours, of days
local HEADER_BYTES = 24
local TILE = '<I4i4i4i4i4xxxxd' -- number, issuer declines, verdicts, disputes, frauds, thousandths
local TILE_BYTES = 32
local TILE_MS = { 60000, 3600000, 86400000 }
local TILES_BACK = { 60, 24, 37 } -- how far behind the clock's tile the oldest lies
local KEYS_A_READ = 2000 -- Lua's C stack takes 8,000 values

-- A ring with one more change, its oldest tiles left behind.
local function add(ring, number, oldest, a, b, c, d, thousandths)
  local unpack, pack, sub = struct.unpack, struct.pack, string.sub
  local first = 1
  while first <= #ring and unpack('<I4', ring, first) < oldest do first = first + TILE_BYTES end
  if first > 1 then ring = sub(ring, first) end
  if number < oldest then return ring end
  local after = #ring + 1 -- where the tiles begin that are newer
  while after > 1 do
    local at = after - TILE_BYTES
    local tile, e, f, g, h, sum = unpack(TILE, ring, at)
    if tile == number then
      return sub(ring, 1, at - 1) .. pack(TILE, number, a + e, b + f, c + g, d + h, thousandths + sum) .. sub(ring, after)
    end
    if tile < number then break end
    after = at
  end
  return sub(ring, 1, after - 1) .. pack(TILE, number, a, b, c, d, thousandths) .. sub(ring, after)
end

local function read(row)
  if row and #row >= HEADER_BYTES then
    local sequence, clock, minutes, hours, days = struct.unpack(HEADER, row)
    local m = HEADER_BYTES + TILE_BYTES * minutes
    local h = m + TILE_BYTES * hours
    if #row == h + TILE_BYTES * days then
      return {
        sequence = sequence, clock = clock,
        string.sub(row, HEADER_BYTES + 1, m), string.sub(row, m + 1, h), string.sub(row, h + 1),
      }
    end
  end
  return { sequence = 0, clock = 0, '', '', '' } -- new, or nothing that could be read
end

local function write(row)
  local tiles = { #row[1] / TILE_BYTES, #row[2] / TILE_BYTES, #row[3] / TILE_BYTES }
  return struct.pack(HEADER, row.sequence, row.clock, tiles[1], tiles[2], tiles[3]) .. row[1] .. row[2] .. row[3]
end

-- (key_marks.lua)

local function learn(keys, args)
  -- Inside a library these exist only while a registered function runs.
  local unpack_list, unpack, call, payload = unpack, struct.unpack, redis.call, args[2]
  local refusal = foreign(keys[2], args[1])
  if refusal then return refusal end
  local changes, partitions, expire_s, _, at = unpack('<I4I4I4I4', payload)
  local names, applied = {}, {}
  for i = 1, partitions do
    names[i], at = unpack('<I4', payload, at)
    names[i] = string.format('%.0f', names[i])
  end
  local before = call('HMGET', keys[1], unpack_list(names))
  for i = 1, partitions do applied[i] = tonumber(before[i] or '-1') end

  local rows, entities = {}, #keys - 2
  for from = 1, entities, KEYS_A_READ do
    local to = math.min(from + KEYS_A_READ - 1, entities)
    local stored = call('MGET', unpack_list(keys, from + 2, to + 2))
    for i = from, to do rows[i] = read(stored[i - from + 1]) end
  end

  local changed, sequences = {}, {}
  local index = {}
  for _ = 1, changes do
    local time, thousandths, offset, partition, a, b, c, d
    time, thousandths, offset, partition, a, b, c, d, index[1], index[2], index[3], index[4], index[5], index[6], at =
      unpack('<dddI2i1i1i1i1I2I2I2I2I2I2', payload, at)
    local new = offset > applied[partition]
    if new then applied[partition] = offset end
    for slot = 1, 6 do
      local row = rows[index[slot]]
      if row then
        if new then
          row.sequence, row.clock = row.sequence + 1, math.max(row.clock, time)
          for level = 1, 3 do
            local ms = TILE_MS[level]
            local oldest = math.floor(row.clock / ms) - TILES_BACK[level]
            row[level] = add(row[level], math.floor(time / ms), oldest, a, b, c, d, thousandths)
          end
          changed[index[slot]] = true
        end
        sequences[#sequences + 1] = struct.pack('<d', row.sequence)
      end
    end
  end

  local expire = string.format('%.0f', expire_s)
  for entity in pairs(changed) do call('SET', keys[entity + 2], write(rows[entity]), 'EX', expire) end
  local marks = {}
  for i = 1, partitions do
    marks[2 * i - 1], marks[2 * i] = names[i], string.format('%.0f', applied[i])
  end
  call('HSET', keys[1], unpack_list(marks))
  call('EXPIRE', keys[1], 2 * expire_s) -- outlives every row of the shard, or a repeat would count twice
  return table.concat(sequences)
end

redis.register_function('assay_learn', learn)
