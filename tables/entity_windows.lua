#!lua name=assay_entities

-- The windows of entities (instruments, merchants, devices, addresses), kept in Redis or Valkey 7+.
--
-- One call applies the observations of one micro-batch and shard, and answers with the rows as each of its transactions
-- saw them, in order. The client turns rows into windows, since that is cheaper there: `entity_layout.py` has the layouts
-- of payload, row and answer, and is the only other place that knows them.
--
--   FCALL assay_observe N KEYS... PAYLOAD
--   KEYS[1]    hash: source partition -> last source offset applied in this shard
--   KEYS[2..]  the rows of the distinct entities of this micro-batch, in the order that the payload's indexes count
--
-- A record whose offset is not beyond the last one applied changes nothing and is answered with the rows as they stand.
-- All is computed before anything is written, so that an error leaves everything as it was.
-- A row's clock is the latest event time so far and never moves back; a late observation lands in its own tile.

local HEADER = '<ddI4I1I1I2' -- sequence, clock (ms), latest tile, short tiles, long tiles, people
local HEADER_BYTES = 24
local TILE = '<I4I4d' -- number, count, sum
local TILE_BYTES = 16
local SHORT_TILES_BACK = 12 -- 1 h in tiles of 5 minutes; one more is kept, to be apportioned
local LONG_TILES_BACK = 24 -- 24 h in tiles of 1 hour; likewise
local SHORT_IN_LONG = 12
local MANY_PEOPLE = 8 -- from here on, a person long gone gives up the place to the next newcomer
local KEYS_A_READ = 2000 -- Lua's C stack takes 8,000 values

local function observe(keys, args)
  -- Inside a library these exist only while a registered function runs.
  local unpack_list, unpack, pack, find, sub = unpack, struct.unpack, struct.pack, string.find, string.sub
  local call, payload = redis.call, args[1]
  local records, partitions, expire_s, quiet, at = unpack('<I4I4I4I4', payload)

  local names, applied = {}, {}
  for i = 1, partitions do
    names[i], at = unpack('<I4', payload, at)
    names[i] = string.format('%.0f', names[i])
  end
  local expire = string.format('%.0f', expire_s) -- once: Redis would turn the number into text at each call
  local before = call('HMGET', keys[1], unpack_list(names))
  for i = 1, partitions do applied[i] = tonumber(before[i] or '-1') end

  -- While the call lasts, a row is two strings: header with tiles, and people.
  local stored, entities = {}, #keys - 1
  for from = 1, entities, KEYS_A_READ do
    local to = math.min(from + KEYS_A_READ - 1, entities)
    local rows = call('MGET', unpack_list(keys, from + 1, to + 1))
    for i = from, to do stored[i] = rows[i - from + 1] end
  end
  local tiles_of, people_of, changed = {}, {}, {}

  -- An observation for a tile that is not the newest. Rare, so it may look at each.
  local function late(tiles, count, tile, amount)
    local place = #tiles + 1
    while place > 1 do
      local number, seen, sum = unpack(TILE, tiles, place - TILE_BYTES)
      if number == tile then
        local changed_tile = pack(TILE, tile, seen + 1, sum + amount)
        return sub(tiles, 1, place - TILE_BYTES - 1) .. changed_tile .. sub(tiles, place), count
      end
      if number < tile then break end
      place = place - TILE_BYTES
    end
    return sub(tiles, 1, place - 1) .. pack(TILE, tile, 1, amount) .. sub(tiles, place), count + 1
  end

  -- Tiles up to `last` with one more; those that time has passed over are left behind.
  local function advance(tiles, first, last, count, oldest, tile, amount)
    while count > 0 and unpack('<I4', tiles, first) < oldest do
      first, count = first + TILE_BYTES, count - 1
    end
    return sub(tiles, first, last) .. pack(TILE, tile, 1, amount), count + 1
  end

  local function apply(entity, time, amount, tile, hour, person, packed_tile)
    local tiles, people = stored[entity] or tiles_of[entity], people_of[entity]
    changed[entity], stored[entity] = true, false
    local sequence, clock, latest, short, long, crowd = 0, 0, 0, 0, 0, 0
    local latest_hour = -1000
    if tiles then
      sequence, clock, latest, short, long, crowd = unpack(HEADER, tiles)
      latest_hour = (latest - latest % SHORT_IN_LONG) / SHORT_IN_LONG
    end
    if hour - latest_hour > LONG_TILES_BACK then -- a new row, or one that time has passed over altogether
      tiles_of[entity] = pack('<ddI4I1I1I2I4I4dI4I4d', 1, time, tile, 1, 1, 1, tile, 1, amount, hour, 1, amount)
      people_of[entity] = person .. packed_tile
      return
    end

    sequence = sequence + 1
    if time > clock then clock = time end
    local long_first = HEADER_BYTES + TILE_BYTES * short + 1
    local end_of_long = long_first + TILE_BYTES * long - 1
    people = people or sub(tiles, end_of_long + 1)
    people_of[entity] = people
    local shorts, longs
    if tile == latest then
      local seen, sum = unpack('<I4d', tiles, long_first - 12)
      shorts = sub(tiles, HEADER_BYTES + 1, long_first - 13) .. pack('<I4d', seen + 1, sum + amount)
    elseif tile > latest then
      shorts, short =
        advance(tiles, HEADER_BYTES + 1, long_first - 1, short, tile - SHORT_TILES_BACK, tile, amount)
      latest = tile
    elseif tile >= latest - SHORT_TILES_BACK then
      shorts, short = late(sub(tiles, HEADER_BYTES + 1, long_first - 1), short, tile, amount)
    else
      shorts = sub(tiles, HEADER_BYTES + 1, long_first - 1)
    end

    if hour == latest_hour then
      local seen, sum = unpack('<I4d', tiles, end_of_long - 11)
      longs = sub(tiles, long_first, end_of_long - 12) .. pack('<I4d', seen + 1, sum + amount)
    elseif hour > latest_hour then
      longs, long = advance(tiles, long_first, end_of_long, long, hour - LONG_TILES_BACK, hour, amount)
      latest_hour = hour
    elseif hour >= latest_hour - LONG_TILES_BACK then
      longs, long = late(sub(tiles, long_first, end_of_long), long, hour, amount)
    else -- too late for any window: counted in the sequence alone
      tiles_of[entity] = pack(HEADER, sequence, clock, latest, short, long, crowd)
        .. sub(tiles, HEADER_BYTES + 1, end_of_long)
      return
    end

    -- People: one byte each, then the tile that each was last seen in, three bytes each.
    local place = find(people, person, 1, true)
    if place and place <= crowd then
      local mark = crowd + 3 * place - 2
      if unpack('<I3', people, mark) < tile then
        people_of[entity] = sub(people, 1, mark - 1) .. packed_tile .. sub(people, mark + 3)
      end
    else
      place = sequence % crowd + 1
      local mark = crowd + 3 * place - 2
      if crowd >= MANY_PEOPLE and unpack('<I3', people, mark) < (latest_hour - LONG_TILES_BACK) * SHORT_IN_LONG then
        people_of[entity] = sub(people, 1, place - 1) .. person .. sub(people, place + 1, mark - 1)
          .. packed_tile .. sub(people, mark + 3)
      else
        people_of[entity] = sub(people, 1, crowd) .. person .. sub(people, crowd + 1) .. packed_tile
        crowd = crowd + 1
      end
    end
    tiles_of[entity] = pack(HEADER, sequence, clock, latest, short, long, crowd) .. shorts .. longs
  end

  local tiles_out, people_out, out = {}, {}, 0
  local nothing = pack(HEADER, 0, 0, 0, 0, 0, 0)
  local time, amount, offset, tile, partition, person
  local index = {}
  for _ = 1, records do
    time, amount, offset, tile, partition, person, index[1], index[2], index[3], index[4], at =
      unpack('<dddI4I2c1xI2I2I2I2', payload, at)
    local new = offset > applied[partition]
    if new then applied[partition] = offset end
    local hour = (tile - tile % SHORT_IN_LONG) / SHORT_IN_LONG
    local packed_tile = pack('<I3', tile)
    for slot = 1, 4 do
      local entity = index[slot]
      if entity > 0 then
        if new then
          apply(entity, time, amount, tile, hour, person, packed_tile)
        elseif stored[entity] then
          local _, _, _, short, long = unpack(HEADER, stored[entity])
          local bytes = HEADER_BYTES + TILE_BYTES * (short + long)
          tiles_of[entity], people_of[entity] = sub(stored[entity], 1, bytes), sub(stored[entity], bytes + 1)
          stored[entity] = false
        end
        out = out + 1
        tiles_out[out], people_out[out] = tiles_of[entity] or nothing, people_of[entity] or ''
      end
    end
  end

  for entity in pairs(changed) do
    call('SET', keys[entity + 1], tiles_of[entity] .. people_of[entity], 'EX', expire)
  end
  local marks = {}
  for i = 1, partitions do
    marks[2 * i - 1], marks[2 * i] = names[i], string.format('%.0f', applied[i])
  end
  call('HSET', keys[1], unpack_list(marks))
  call('EXPIRE', keys[1], 2 * expire_s) -- outlives every row of the shard, or a replay would count twice
  if quiet == 1 then return { '', '' } end
  return { table.concat(tiles_out), table.concat(people_out) }
end

redis.register_function('assay_observe', observe)
