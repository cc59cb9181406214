-- SPDX-License-Identifier: Apache-2.0
-- A control policy, a 6-32-2 network in plain Lua over FFI arrays: forward and backward for one situation at a time.
-- Weights are fp32; gradients are summed in fp32, times the scale. What becomes of them is in main.lua.
local ffi = require("ffi")

local policy = {inputs = 6, hidden = 32, outputs = 2}
local I, H, O = policy.inputs, policy.hidden, policy.outputs
-- First matrix (inputs x hidden), its bias, second matrix (hidden x outputs), its bias.
local W1, B1, W2, B2 = 0, I * H, I * H + H, I * H + H + H * O
policy.count = B2 + O

policy.weights = ffi.new("float[?]", policy.count)
policy.sums = ffi.new("float[?]", policy.count)

local input, wanted = ffi.new("float[?]", I), ffi.new("float[?]", O)
local hidden, output = ffi.new("float[?]", H), ffi.new("float[?]", O)
local delta_out, delta_hidden = ffi.new("float[?]", O), ffi.new("float[?]", H)

-- The same numbers on every machine: a linear congruential generator, exact in doubles.
local state = 1
local function random()
  state = (state * 16807) % 2147483647
  return 2 * state / 2147483647 - 1
end

function policy.initialize()
  for i = 0, B1 - 1 do policy.weights[i] = random() * math.sqrt(3 / I) end
  for i = W2, B2 - 1 do policy.weights[i] = random() * math.sqrt(3 / H) end
end

-- What the autopilot does: steer towards the target, against speed and wind.
local function situation()
  for i = 0, I - 1 do input[i] = random() end
  for axis = 0, O - 1 do
    local x = 1.5 * input[axis] - 0.8 * input[2 + axis] - 0.4 * input[4 + axis]
    wanted[axis] = 2 / (1 + math.exp(-2 * x)) - 1
  end
end

local function forward()
  local w = policy.weights
  for j = 0, H - 1 do
    local sum = w[B1 + j]
    for i = 0, I - 1 do sum = sum + input[i] * w[W1 + i * H + j] end
    hidden[j] = sum > 0 and sum or 0
  end
  for k = 0, O - 1 do
    local sum = w[B2 + k]
    for j = 0, H - 1 do sum = sum + hidden[j] * w[W2 + j * O + k] end
    output[k] = sum
  end
end

-- Adds the gradients of one situation out of `rows` to the sums, times `scale`. Returns its share of the loss.
function policy.add_gradients(rows, scale)
  local w, g, loss, mean = policy.weights, policy.sums, 0, 1 / (rows * O)
  situation()
  forward()
  for k = 0, O - 1 do
    local error = output[k] - wanted[k]
    loss = loss + mean * error * error
    delta_out[k] = 2 * mean * error * scale
    g[B2 + k] = g[B2 + k] + delta_out[k]
  end
  for j = 0, H - 1 do
    local sum = 0
    for k = 0, O - 1 do
      g[W2 + j * O + k] = g[W2 + j * O + k] + hidden[j] * delta_out[k]
      sum = sum + w[W2 + j * O + k] * delta_out[k]
    end
    delta_hidden[j] = hidden[j] > 0 and sum or 0
    g[B1 + j] = g[B1 + j] + delta_hidden[j]
  end
  for i = 0, I - 1 do
    for j = 0, H - 1 do g[W1 + i * H + j] = g[W1 + i * H + j] + input[i] * delta_hidden[j] end
  end
  return loss
end

return policy
