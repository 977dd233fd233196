-- Rows of another key of digests must not lie beside ours: whoever writes first marks the part of the shard.
local function foreign(mark, ours)
  if ours == '' then return nil end
  local found = redis.call('GET', mark)
  if not found then redis.call('SET', mark, ours) end
  if found and found ~= ours then return redis.error_reply('OTHERKEY ' .. found) end
end
