#!lua name=assay_entities

-- The windows of entities (instruments, BINs, merchants, devices, addresses), kept in Redis or Valkey 7+.
--
-- One call applies the observations of one micro-batch and shard, and answers with the row of each of its entities as it
-- was before, and with the offsets applied before. From those the client works out what each transaction saw, by the same code
-- that it uses without Redis. `entity_layout.py` has the layouts of payload, row and answer, and what they mean.
--
--   FCALL assay_observe N KEYS... PAYLOAD
--   KEYS[1]    hash: source partition -> last source offset applied in this shard
--   KEYS[2..]  the rows of the distinct entities of this micro-batch, in the order of the payload
--
-- A record whose offset is not beyond the last one applied before the call changes nothing.
-- All is computed before anything is written, so that an error leaves everything as it was.

local HEADER = '<ddI4I4I4I4dI4I4I4I4dI4I4I4I4dI4I4I4I4dI2I2I2I2'
local HEADER_BYTES = 120
local TILE = '<I4I4I4I4d' -- number, attempts, small ones, (unused), spending
local TILE_BYTES = 24
local BACK_1, BACK_2, BACK_3, BACK_4 = 60, 12, 24, 37 -- tiles kept behind the newest: 10 s, 5 min, 1 h, 1 day
local CROWD_BACK = 30 * 8640 -- tiles of 10 s
local MANY_PEOPLE = 8 -- from here on, one long gone gives up the place to the next newcomer
local NEVER = -1e9 -- number of a tile that any other is too far ahead of
local KEYS_A_READ = 2000 -- Lua's C stack takes 8,000 values
local PADDING = { [0] = '', '\0\0\0\0\0\0\0', '\0\0\0\0\0\0', '\0\0\0\0\0', '\0\0\0\0', '\0\0\0', '\0\0', '\0' }

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
  for i = 1, partitions do
    before[i] = tonumber(before[i] or '-1')
    applied[i] = before[i]
  end

  local fresh, times, amounts, smalls, marks = {}, {}, {}, {}, {}
  local tiles_1, tiles_2, tiles_3, tiles_4 = {}, {}, {}, {}
  local users, instruments, devices = {}, {}, {} -- one byte each; false where there is none
  for i = 1, records do
    local offset, partition, met_1, met_2, met_3
    times[i], amounts[i], offset, tiles_1[i], tiles_2[i], tiles_3[i], tiles_4[i], partition, smalls[i],
      users[i], instruments[i], devices[i], met_1, met_2, met_3, at =
      unpack('<dddI4I4I4I4I2I1c1c1c1I1I1I1x', payload, at)
    fresh[i] = offset > before[partition]
    if offset > applied[partition] then applied[partition] = offset end
    marks[i] = pack('<I4', tiles_1[i])
    if met_1 == 0 then users[i] = false end
    if met_2 == 0 then instruments[i] = false end
    if met_3 == 0 then devices[i] = false end
  end

  -- A ring with one observation more: the newest tile, how many older ones there are, and where those lie, which is in a row
  -- for as long as that can be, since every string made anew costs by its bytes: in `tiles` at `from`, the last one in `added`.
  local function step(number, count, small, older, sum, tiles, from, added, tile, more_small, amount, back)
    if tile < number - back then return number, count, small, older, sum, tiles, from, added end
    if tile > number and number < tile - back then return tile, 1, more_small, 0, amount, '', 1, '' end
    if added ~= '' then
      tiles, from, added = sub(tiles, from, from + TILE_BYTES * (older - 1) - 1) .. added, 1, ''
    end
    if tile > number then
      local oldest = tile - back
      while older > 0 and unpack('<I4', tiles, from) < oldest do
        from, older = from + TILE_BYTES, older - 1
      end
      return tile, 1, more_small, older + 1, amount, tiles, from, pack(TILE, number, count, small, 0, sum)
    end
    local last = from + TILE_BYTES * older - 1
    local place = last + 1 -- a late one: rare, so it may look at each
    while place > from do
      local found, seen, seen_small, _, seen_sum = unpack(TILE, tiles, place - TILE_BYTES)
      if found == tile then
        return number, count, small, older, sum, sub(tiles, from, place - TILE_BYTES - 1)
          .. pack(TILE, tile, seen + 1, seen_small + more_small, 0, seen_sum + amount) .. sub(tiles, place, last), 1, ''
      end
      if found < tile then break end
      place = place - TILE_BYTES
    end
    return number, count, small, older + 1, sum,
      sub(tiles, from, place - 1) .. pack(TILE, tile, 1, more_small, 0, amount) .. sub(tiles, place, last), 1, ''
  end

  -- The older tiles of a ring but for the last one, if that was added.
  local function older_tiles(older, tiles, from, added)
    if added ~= '' then older = older - 1 end
    if older == 0 then return '' end
    return sub(tiles, from, from + TILE_BYTES * older - 1)
  end

  -- A crowd with one person more: who, one byte each, and the tiles in which they were last seen.
  local function meet(crowd, seen, person, tile, mark, oldest, sequence)
    local place = find(crowd, person, 1, true)
    if place then
      place = 4 * place - 3
      if unpack('<I4', seen, place) >= tile then return crowd, seen end
      return crowd, sub(seen, 1, place - 1) .. mark .. sub(seen, place + 4)
    end
    local many = #crowd
    if many >= MANY_PEOPLE then
      place = sequence % many + 1
      local first = 4 * place - 3
      if unpack('<I4', seen, first) < oldest then
        return sub(crowd, 1, place - 1) .. person .. sub(crowd, place + 1),
          sub(seen, 1, first - 1) .. mark .. sub(seen, first + 4)
      end
    end
    return crowd .. person, seen .. mark
  end

  -- The crowds of a row, which begin at `first`, after a meeting: in seven pieces. Nil if somebody is a newcomer.
  local function meet_again(row, first, u, i, d, user, instrument, device, tile, mark)
    local crowd, from = first + 4 * (u + i + d), first
    local c1, m1, c2, m2, c3, m3 = '', '', '', '', '', ''
    local place
    if user then
      place = find(row, user, crowd, true)
      if not place or place >= crowd + u then return nil end
      place = first + 4 * (place - crowd)
      if unpack('<I4', row, place) < tile then c1, m1, from = sub(row, from, place - 1), mark, place + 4 end
    end
    if instrument then
      place = find(row, instrument, crowd + u, true)
      if not place or place >= crowd + u + i then return nil end
      place = first + 4 * (place - crowd)
      if unpack('<I4', row, place) < tile then c2, m2, from = sub(row, from, place - 1), mark, place + 4 end
    end
    if device then
      place = find(row, device, crowd + u + i, true)
      if not place or place >= crowd + u + i + d then return nil end
      place = first + 4 * (place - crowd)
      if unpack('<I4', row, place) < tile then c3, m3, from = sub(row, from, place - 1), mark, place + 4 end
    end
    return c1, m1, c2, m2, c3, m3, sub(row, from)
  end

  -- The crowds of a row, which begin at `first`: when they were last seen, and who they are.
  local function crowds_of(row, first, u, i, d)
    local whom = first + 4 * (u + i + d)
    return sub(row, first, first + 4 * u - 1), sub(row, first + 4 * u, first + 4 * (u + i) - 1),
      sub(row, first + 4 * (u + i), whom - 1), sub(row, whom, whom + u - 1), sub(row, whom + u, whom + u + i - 1),
      sub(row, whom + u + i, whom + u + i + d - 1)
  end

  -- A row after those of its observations that are fresh, which lie at `at` in the payload. All in locals, ring by ring: a
  -- table for each ring of each row would be made and thrown away.
  local function after(row, observations, has_users, has_instruments, has_devices, at)
    local sequence, clock, u, i, d, first = 0, 0, 0, 0, 0, 1
    local n1, c1, s1, o1, a1, t1, f1, p1 = NEVER, 0, 0, 0, 0, '', 1, ''
    local n2, c2, s2, o2, a2, t2, f2, p2 = NEVER, 0, 0, 0, 0, '', 1, ''
    local n3, c3, s3, o3, a3, t3, f3, p3 = NEVER, 0, 0, 0, 0, '', 1, ''
    local n4, c4, s4, o4, a4, t4, f4, p4 = NEVER, 0, 0, 0, 0, '', 1, ''
    local q1, q2, q3, q4, q5, q6, q7 -- the crowds in pieces
    local seen_u, seen_i, seen_d, whom_u, whom_i, whom_d -- or each apart
    if row then
      sequence, clock, n1, c1, s1, o1, a1, n2, c2, s2, o2, a2, n3, c3, s3, o3, a3, n4, c4, s4, o4, a4, u, i, d =
        unpack(HEADER, row)
      t1, t2, t3, t4, f1 = row, row, row, row, HEADER_BYTES + 1
      f2 = f1 + TILE_BYTES * o1
      f3 = f2 + TILE_BYTES * o2
      f4 = f3 + TILE_BYTES * o3
      first = f4 + TILE_BYTES * o4
    else
      row, whom_u, whom_i, whom_d, seen_u, seen_i, seen_d = '', '', '', '', '', '', ''
    end

    for _ = 1, observations do
      local k
      k, at = unpack('<I2', payload, at)
      if fresh[k] then
        local tile, small, amount = tiles_1[k], smalls[k], amounts[k]
        if tiles_4[k] - n4 > BACK_4 then -- a new row, or one that time has passed over altogether
          sequence, clock = 0, 0
          n1, n2, n3, n4 = NEVER, NEVER, NEVER, NEVER
          whom_u, whom_i, whom_d, seen_u, seen_i, seen_d = '', '', '', '', '', ''
        end
        sequence = sequence + 1
        if times[k] > clock then clock = times[k] end
        if tile == n1 then
          c1, s1, a1 = c1 + 1, s1 + small, a1 + amount
        else
          n1, c1, s1, o1, a1, t1, f1, p1 = step(n1, c1, s1, o1, a1, t1, f1, p1, tile, small, amount, BACK_1)
        end
        if tiles_2[k] == n2 then
          c2, s2, a2 = c2 + 1, s2 + small, a2 + amount
        else
          n2, c2, s2, o2, a2, t2, f2, p2 = step(n2, c2, s2, o2, a2, t2, f2, p2, tiles_2[k], small, amount, BACK_2)
        end
        if tiles_3[k] == n3 then
          c3, s3, a3 = c3 + 1, s3 + small, a3 + amount
        else
          n3, c3, s3, o3, a3, t3, f3, p3 = step(n3, c3, s3, o3, a3, t3, f3, p3, tiles_3[k], small, amount, BACK_3)
        end
        if tiles_4[k] == n4 then
          c4, s4, a4 = c4 + 1, s4 + small, a4 + amount
        else
          n4, c4, s4, o4, a4, t4, f4, p4 = step(n4, c4, s4, o4, a4, t4, f4, p4, tiles_4[k], small, amount, BACK_4)
        end
        local oldest, mark = n1 - CROWD_BACK, marks[k]
        if tile >= oldest then
          local user, instrument, device =
            has_users and users[k], has_instruments and instruments[k], has_devices and devices[k]
          if observations == 1 and not whom_u then
            q1, q2, q3, q4, q5, q6, q7 = meet_again(row, first, u, i, d, user, instrument, device, tile, mark)
          end
          if not q1 then
            if not whom_u then seen_u, seen_i, seen_d, whom_u, whom_i, whom_d = crowds_of(row, first, u, i, d) end
            if user then whom_u, seen_u = meet(whom_u, seen_u, user, tile, mark, oldest, sequence) end
            if instrument then whom_i, seen_i = meet(whom_i, seen_i, instrument, tile, mark, oldest, sequence) end
            if device then whom_d, seen_d = meet(whom_d, seen_d, device, tile, mark, oldest, sequence) end
          end
        end
      end
    end
    if whom_u then
      u, i, d = #whom_u, #whom_i, #whom_d
      q1, q2, q3, q4, q5, q6, q7 = seen_u, seen_i, seen_d, whom_u, whom_i, whom_d, PADDING[5 * (u + i + d) % 8]
    elseif not q1 then
      q1, q2, q3, q4, q5, q6, q7 = sub(row, first), '', '', '', '', '', ''
    end
    return pack(HEADER, sequence, clock, n1, c1, s1, o1, a1, n2, c2, s2, o2, a2, n3, c3, s3, o3, a3, n4, c4, s4, o4, a4, u, i, d, 0)
      .. older_tiles(o1, t1, f1, p1) .. p1 .. older_tiles(o2, t2, f2, p2) .. p2
      .. older_tiles(o3, t3, f3, p3) .. p3 .. older_tiles(o4, t4, f4, p4) .. p4
      .. q1 .. q2 .. q3 .. q4 .. q5 .. q6 .. q7
  end

  local stored, rows, entities = {}, {}, #keys - 1
  for from = 1, entities, KEYS_A_READ do
    local to = math.min(from + KEYS_A_READ - 1, entities)
    local found = call('MGET', unpack_list(keys, from + 1, to + 1))
    for i = from, to do stored[i] = found[i - from + 1] end
  end
  local observed = at + 4 * entities -- where the numbers of the observations begin, entity after entity
  for entity = 1, entities do
    local observations, crowds
    observations, crowds, at = unpack('<I2I1x', payload, at)
    local any = false
    for k = observed, observed + 2 * observations - 2, 2 do
      if fresh[unpack('<I2', payload, k)] then any = true break end
    end
    if any then
      rows[entity] = after(stored[entity], observations, crowds % 2 >= 1, crowds % 4 >= 2, crowds % 8 >= 4, observed)
    end
    observed = observed + 2 * observations
  end

  for entity, row in pairs(rows) do call('SET', keys[entity + 1], row, 'EX', expire) end
  local changes = {}
  for i = 1, partitions do
    changes[2 * i - 1], changes[2 * i] = names[i], string.format('%.0f', applied[i])
  end
  call('HSET', keys[1], unpack_list(changes))
  call('EXPIRE', keys[1], 2 * expire_s) -- outlives every row of the shard, or a replay would count twice
  if quiet == 1 then return { '', '' } end
  for i = 1, partitions do before[i] = pack('<d', before[i]) end
  return { table.concat(before), stored }
end

redis.register_function('assay_observe', observe)
