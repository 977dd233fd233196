#!lua name=assay_entity_windows

-- The rows of entities (instruments, BINs, merchants, devices, addresses), kept in Redis or Valkey 7+.
--
-- A row is a log: what had been made of its observations when it was last compacted (the base), then those that came since (the
-- tail). Here observations are only appended; whoever reads a row folds the tail onto the base, by the same code that it uses
-- without Redis, and sends a base of both when the tail has grown long. `entity_layout.py` has the layouts of payload, row and
-- answer, and what they mean.
--
--   FCALL assay_observe N KEYS... FINGERPRINT PAYLOAD
--   KEYS[1]    hash: source partition -> last source offset applied in this shard
--   KEYS[2]    the mark: fingerprint of the key that the digests are under (`key_marks.py`)
--   KEYS[3..]  the rows of the distinct entities of this micro-batch, in the order of the payload
--
-- appends the observations of one micro-batch and shard, and answers with the offsets applied before, each row as it was
-- before, and how many observations found their row full, or none that it is. Where nobody waits for the answer, it has the
-- longest rows alone, for whoever sends to compact. A record whose offset is not beyond the last one applied before the call
-- changes nothing. All is computed before anything is written, so that an error leaves everything as it was.
--
--   FCALL assay_compact N KEYS... PAYLOAD
--
-- puts a base in the place of what it was made from, where that still stands: as long, with the same first and last bytes.

local RECORD_BYTES, TAIL_BYTES = 40, 24
local PREFIX = '\0\0\0\0\0\0\0\0' -- of a row without a base
local MOST_BYTES = 105464 -- of a row
local LONG_TAIL = 512 * TAIL_BYTES -- to be compacted even where nobody waits for an answer
local KEYS_A_READ = 2000 -- Lua's C stack takes 8,000 values
local COMPARED = 24 -- bytes

-- (key_marks.lua)

local function observe(keys, args)
  -- Inside a library these exist only while a registered function runs.
  local unpack_list, unpack, sub, concat = unpack, struct.unpack, string.sub, table.concat
  local call, payload = redis.call, args[2]
  local refusal = foreign(keys[2], args[1])
  if refusal then return refusal end
  local records, partitions, expire_s, quiet, at = unpack('<I4I4I4I4', payload)

  local names, before, applied = {}, {}, {}
  for i = 1, partitions do
    names[i], at = unpack('<I4', payload, at)
    names[i] = string.format('%.0f', names[i])
  end
  local expire = string.format('%.0f', expire_s) -- once: Redis would turn the number into text at each call
  before = call('HMGET', keys[1], unpack_list(names))
  for i = 1, partitions do
    before[i] = tonumber(before[i] or '-1')
    applied[i] = before[i]
  end

  local tails = {} -- of those records that are new
  for i = 1, records do
    local offset, partition = unpack('<dI2', payload, at + TAIL_BYTES)
    if offset > before[partition] then tails[i] = sub(payload, at, at + TAIL_BYTES - 1) end
    if offset > applied[partition] then applied[partition] = offset end
    at = at + RECORD_BYTES
  end

  local stored, tail_of, rows, full, entities = {}, {}, {}, 0, #keys - 2
  for from = 1, entities, KEYS_A_READ do
    local to = math.min(from + KEYS_A_READ - 1, entities)
    local found = call('MGET', unpack_list(keys, from + 2, to + 2))
    for i = from, to do
      local row = found[i - from + 1] or PREFIX
      stored[i] = row
      tail_of[i] = #row < #PREFIX and -1 or #row - #PREFIX - unpack('<I4', row)
    end
  end
  local observed = at + 2 * entities -- where the numbers of the observations begin, entity after entity
  for entity = 1, entities do
    local observations, more
    observations, at = unpack('<I2', payload, at)
    if observations == 1 then
      more = tails[unpack('<I2', payload, observed)]
    else
      local list = {}
      for k = observed, observed + 2 * observations - 2, 2 do list[#list + 1] = tails[unpack('<I2', payload, k)] end
      more = list[1] and concat(list)
    end
    observed = observed + 2 * observations
    if more then
      local tail = tail_of[entity]
      if tail < 0 or tail % TAIL_BYTES ~= 0 or #stored[entity] + #more > MOST_BYTES then
        full = full + #more / TAIL_BYTES
      else
        rows[entity] = stored[entity] .. more
      end
    end
  end

  for entity, row in pairs(rows) do call('SET', keys[entity + 2], row, 'EX', expire) end
  local changes = {}
  for i = 1, partitions do
    changes[2 * i - 1], changes[2 * i] = names[i], string.format('%.0f', applied[i])
  end
  call('HSET', keys[1], unpack_list(changes))
  call('EXPIRE', keys[1], 2 * expire_s) -- outlives every row of the shard, or a replay would count twice
  if quiet == 1 then
    for entity = 1, entities do
      if tail_of[entity] < LONG_TAIL then stored[entity] = '' end
    end
  end
  for i = 1, partitions do before[i] = struct.pack('<d', before[i]) end
  return { concat(before), stored, full }
end

local function compact(keys, args)
  local unpack, sub = struct.unpack, string.sub
  local call, payload = redis.call, args[1]
  local expire_s, _, at = unpack('<I4I4', payload)
  local expire = string.format('%.0f', expire_s)
  for i = 1, #keys do
    local read, bytes, first, last
    read, bytes, at = unpack('<I4I4', payload, at)
    local compared = math.min(COMPARED, read)
    first, last = sub(payload, at, at + compared - 1), sub(payload, at + compared, at + 2 * compared - 1)
    at = at + 2 * compared
    local row = call('GET', keys[i])
    if row and sub(row, 1, compared) == first and sub(row, read - compared + 1, read) == last then
      call('SET', keys[i], sub(payload, at, at + bytes - 1) .. sub(row, read + 1), 'EX', expire)
    end
    at = at + bytes
  end
  return #keys
end

redis.register_function('assay_observe', observe)
redis.register_function('assay_compact', compact)
