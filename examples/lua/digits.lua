-- SPDX-License-Identifier: Apache-2.0
-- Trains a 64-64-10 network on handwritten digits in LuaJIT, with a loss so small that most of its gradients are lost in
-- fp16 without loss scaling: once without, once with a scaler. Weights, activations and gradients are stored in fp16; the
-- library converts. Fails if scaling does not do what it should. The twin in C is examples/c/digits.
--
--     GRADSCALER_LIBRARY=... luajit digits.lua <folder of gradscaler.lua> digits.csv.gz
package.path = arg[1] .. "/?.lua;" .. package.path
local ffi = require("ffi")
local gs = require("gradscaler")
local C = gs.open()

local PIXELS, HIDDEN, CLASSES, ROWS = 64, 64, 10, 64
local TRAIN, STEPS, FACTOR = 1437, 200, 1e-5

local function read(path)
  local images, labels = {}, {}
  for line in assert(io.popen(("gzip -dc '%s'"):format(path))):lines() do
    local numbers = {}
    for word in line:gmatch("%d+") do numbers[#numbers + 1] = tonumber(word) end
    assert(#numbers == PIXELS + 1, path .. ": not 64 pixels and a digit")
    labels[#labels + 1] = table.remove(numbers)
    images[#images + 1] = numbers
  end
  assert(#images > TRAIN, path .. " cannot be read")
  -- Shuffled, by numbers that are the same everywhere.
  local state = 1
  for i = #images, 2, -1 do
    state = (state * 16807) % 2147483647
    local j = state % i + 1
    images[i], images[j], labels[i], labels[j] = images[j], images[i], labels[j], labels[i]
  end
  return images, labels
end

-- Memory in fp16 and in fp32; the network computes in fp32.
local function buffer(count, name)
  return {count = count, name = name, half = ffi.new("uint16_t[?]", count), full = ffi.new("float[?]", count)}
end

local context = gs.context({num_threads = 1})

local function cast(from, from_dtype, to, to_dtype, count)
  gs.check(C.gsc_ops_cast(context, gs.tensor(from, count, from_dtype), gs.tensor(to, count, to_dtype), 1, nil))
end
local function load(b) cast(b.half, C.GSC_FP16, b.full, C.GSC_FP32, b.count) end
local function store(b) cast(b.full, C.GSC_FP32, b.half, C.GSC_FP16, b.count) end
-- Rounds to fp16, as an operation whose result is stored in fp16 does.
local function round(b)
  store(b)
  load(b)
end

-- out (n x m) += a (n x k) * b (k x m), of any strides.
local function multiply(out, a, b, n, k, m, a_row, a_column, b_row, b_column)
  for i = 0, n - 1 do
    for p = 0, k - 1 do
      local factor = a[i * a_row + p * a_column]
      for j = 0, m - 1 do out[i * m + j] = out[i * m + j] + factor * b[p * b_row + j * b_column] end
    end
  end
end

local Network = {}
Network.__index = Network

function Network.new()
  local self = setmetatable({}, Network)
  self.weights = {buffer(PIXELS * HIDDEN, "layer1.weight"), buffer(HIDDEN * CLASSES, "layer2.weight")}
  self.grads = {buffer(PIXELS * HIDDEN, "layer1.weight"), buffer(HIDDEN * CLASSES, "layer2.weight")}
  self.x, self.h, self.z = buffer(ROWS * PIXELS), buffer(ROWS * HIDDEN), buffer(ROWS * CLASSES)
  self.dh = buffer(ROWS * HIDDEN)
  return self
end

function Network:forward()
  for _, weight in ipairs(self.weights) do load(weight) end
  round(self.x)
  ffi.fill(self.h.full, 4 * self.h.count)
  multiply(self.h.full, self.x.full, self.weights[1].full, ROWS, PIXELS, HIDDEN, PIXELS, 1, HIDDEN, 1)
  for i = 0, self.h.count - 1 do self.h.full[i] = math.max(self.h.full[i], 0) end
  round(self.h)
  ffi.fill(self.z.full, 4 * self.z.count)
  multiply(self.z.full, self.h.full, self.weights[2].full, ROWS, HIDDEN, CLASSES, HIDDEN, 1, CLASSES, 1)
  round(self.z)
end

-- From the gradient of the loss with respect to the logits, which is in self.z.
function Network:backward()
  for _, grad in ipairs(self.grads) do ffi.fill(grad.full, 4 * grad.count) end
  ffi.fill(self.dh.full, 4 * self.dh.count)
  multiply(self.grads[2].full, self.h.full, self.z.full, HIDDEN, ROWS, CLASSES, 1, HIDDEN, CLASSES, 1)
  multiply(self.dh.full, self.z.full, self.weights[2].full, ROWS, CLASSES, HIDDEN, CLASSES, 1, 1, CLASSES)
  for i = 0, self.dh.count - 1 do
    if self.h.full[i] == 0 then self.dh.full[i] = 0 end
  end
  round(self.dh)
  multiply(self.grads[1].full, self.x.full, self.dh.full, PIXELS, ROWS, HIDDEN, 1, PIXELS, HIDDEN, 1)
  for _, grad in ipairs(self.grads) do store(grad) end
end

-- The gradient of the mean cross-entropy times `factor`, in place of the logits.
function Network:loss_gradient(labels, factor)
  local z = self.z.full
  for i = 0, ROWS - 1 do
    local largest, sum = -math.huge, 0
    for j = 0, CLASSES - 1 do largest = math.max(largest, z[i * CLASSES + j]) end
    for j = 0, CLASSES - 1 do
      z[i * CLASSES + j] = math.exp(z[i * CLASSES + j] - largest)
      sum = sum + z[i * CLASSES + j]
    end
    for j = 0, CLASSES - 1 do
      local wanted = labels[i] == j and 1 or 0
      z[i * CLASSES + j] = (z[i * CLASSES + j] / sum - wanted) / ROWS * factor
    end
  end
end

function Network:show(images, first)
  for i = 0, ROWS - 1 do
    local image = images[(first + i - 1) % #images + 1]
    for j = 0, PIXELS - 1 do self.x.full[i * PIXELS + j] = image[j + 1] / 16 end
  end
  self:forward()
end

function Network:accuracy(images, labels)
  local right, seen = 0, 0
  for first = TRAIN + 1, #images - ROWS + 1, ROWS do
    self:show(images, first)
    for i = 0, ROWS - 1 do
      local best = 0
      for j = 1, CLASSES - 1 do
        if self.z.full[i * CLASSES + j] > self.z.full[i * CLASSES + best] then best = j end
      end
      right, seen = right + (best == labels[first + i] and 1 or 0), seen + 1
    end
  end
  return right / seen
end

local function train(name, images, labels, enabled)
  local network, master, grads, copy = Network.new(), {}, {}, {}
  local state = 1
  for i, weight in ipairs(network.weights) do
    local values = ffi.new("float[?]", weight.count)
    for j = 0, weight.count - 1 do
      state = (state * 16807) % 2147483647
      values[j] = (state / 2147483647 - 0.5) * 0.5
    end
    cast(values, C.GSC_FP32, weight.half, C.GSC_FP16, weight.count)
    master[i] = {values, weight.count, C.GSC_FP32}
    grads[i] = {network.grads[i].half, weight.count, C.GSC_FP16, weight.name}
    copy[i] = {weight.half, weight.count, C.GSC_FP16}
  end
  local optimizer = gs.optimizer(context, {kind = C.GSC_ADAMW, lr = 2e-3}, gs.list(context, master),
                                 gs.list(context, grads), gs.list(context, copy))
  local scaler = gs.scaler(context, {enabled = enabled and 1 or 0, growth_interval = 50})
  local batch = ffi.new("int32_t[?]", ROWS)
  for step = 0, STEPS - 1 do
    local first = step * ROWS % (TRAIN - ROWS) + 1
    network:show(images, first)
    for i = 0, ROWS - 1 do batch[i] = labels[first + i] end
    network:loss_gradient(batch, FACTOR)
    -- The first gradient of the backward pass, times the scale, rounded to fp16.
    local z = network.z
    gs.check(C.gsc_scaler_scale(scaler, gs.tensor(z.full, z.count, C.GSC_FP32), gs.tensor(z.half, z.count, C.GSC_FP16),
                                1, nil))
    load(z)
    network:backward()
    -- Check, unscale, AdamW and the fp16 weights; skipped if a gradient is inf or NaN.
    gs.check(C.gsc_scaler_step(scaler, optimizer, nil))
    gs.check(C.gsc_scaler_update(scaler, nil))
  end
  local accuracy = network:accuracy(images, labels)
  print(("%-18s accuracy %5.1f %%, scale %d"):format(name, 100 * accuracy, gs.scale(scaler)))
  return accuracy
end

local images, labels = read(arg[2])
local plain = train("fp16, no scaling", images, labels, false)
local scaled = train("fp16 + scaler", images, labels, true)
assert(plain < 0.5, "does not hold: unscaled fp16 fails")
assert(scaled > 0.9, "does not hold: scaled fp16 reaches 90 %")
