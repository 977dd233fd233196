#!lua name=assay_transaction_index

-- What is kept of decided transactions, so that their outcomes find them. `transaction_index.py` has the layouts.

-- (key_marks.lua)

-- FCALL assay_keep N MARK KEYS... FINGERPRINT EXPIRE_S VALUES
-- VALUES are those of KEYS, in their order, all of one width. What a key has already stays as it is, and so does how
-- long that is kept: a transaction that is decided again keeps what was heard of it.
local function keep(keys, args)
  local call, sub, ours, expire, values = redis.call, string.sub, args[1], args[2], args[3]
  local refusal = foreign(keys[1], ours)
  if refusal then return refusal end
  local count = #keys - 1
  local width = #values / count
  for i = 1, count do
    call('SET', keys[i + 1], sub(values, (i - 1) * width + 1, i * width), 'NX', 'EX', expire)
  end
  return count
end

-- FCALL assay_remember N KEYS... (BEFORE AFTER)...
-- Answers for each key whether it had BEFORE, and has AFTER now. Who was overtaken by another has to read again.
local function remember(keys, args)
  local call, taken = redis.call, {}
  for i = 1, #keys do
    local same = call('GET', keys[i]) == args[2 * i - 1]
    if same then call('SET', keys[i], args[2 * i], 'KEEPTTL') end
    taken[i] = same and 1 or 0
  end
  return taken
end

redis.register_function('assay_keep', keep)
redis.register_function('assay_remember', remember)
