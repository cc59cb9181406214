-- SPDX-License-Identifier: Apache-2.0
-- A game in LOVE 11 that trains a policy within love.update, with the library through LuaJIT's FFI: fp16 gradients, a
-- loss scale that starts too high, AdamW, 1 ms a frame. It shows scale and loss, and ends with exit code 0 if the loss has
-- fallen, steps were skipped and applied, and a failed call names its argument. It needs no window: conf.lua.
-- GRADSCALER_LIBRARY names the shared library.
local ffi = require("ffi")
local gs = require("gradscaler")
local policy = require("policy")

local STEPS, SHOW_EVERY, ROWS, SLICE, BUDGET = 300, 60, 64, 8, 0.001

local training = {steps = 0, row = 0, loss = 0, first_loss = nil}

local function open()
  local C = gs.open()
  local halfs = ffi.new("uint16_t[?]", policy.count)
  policy.initialize()
  training.context = gs.context()
  training.sums, training.halfs = gs.tensor(policy.sums, policy.count, C.GSC_FP32),
                                  gs.tensor(halfs, policy.count, C.GSC_FP16)
  training.optimizer = gs.optimizer(training.context, {kind = C.GSC_ADAMW, lr = 5e-3},
                                    gs.list(training.context, {{policy.weights, policy.count, C.GSC_FP32}}),
                                    gs.list(training.context, {{halfs, policy.count, C.GSC_FP16}}))
  training.scaler = gs.scaler(training.context, {init_scale = 2 ^ 24, growth_interval = 100})
end

-- Some rows of the batch; after the last one the gradients become fp16, and the library does the rest.
local function slice()
  if training.row == 0 then
    ffi.fill(policy.sums, 4 * policy.count)
    training.batch_loss = 0
    training.scale = gs.scale(training.scaler)
  end
  for _ = 1, SLICE do
    training.batch_loss = training.batch_loss + policy.add_gradients(ROWS, training.scale)
  end
  training.row = training.row + SLICE
  if training.row < ROWS then return end
  gs.check(gs.C.gsc_ops_cast(training.context, training.sums, training.halfs, 1, nil))
  gs.check(gs.C.gsc_scaler_step_and_update(training.scaler, training.optimizer, nil))
  training.row, training.steps, training.loss = 0, training.steps + 1, training.batch_loss
  training.first_loss = training.first_loss or training.loss
  if training.steps % SHOW_EVERY == 0 then
    print(string.format("step %3d  scale %8g  loss %.4f", training.steps, training.scale, training.loss))
  end
end

local times = {}
local function show_times()
  table.sort(times)
  local function at(share) return 1000 * times[1 + math.floor(share * (#times - 1))] end
  print(string.format("%-34s %7s %9s %9s %9s", "milliseconds", "frames", "p50", "p99", "worst"))
  print(string.format("%-34s %7d %9.3f %9.3f %9.3f", "training in love.update", #times, at(0.5), at(0.99), at(1)))
end

local function finish()
  show_times()
  local steps = ffi.new("int64_t[2]")
  gs.check(gs.C.gsc_optimizer_get_steps_sync(training.optimizer, steps, steps + 1, nil))
  assert(steps[0] + steps[1] == STEPS and steps[1] > 0, "steps were not counted, or none was skipped")
  assert(training.loss < 0.2 * training.first_loss, "the loss has not fallen")
  local ok, message = pcall(gs.check, gs.C.gsc_scaler_step(nil, training.optimizer, nil))
  assert(not ok and message:find("gsc_scaler_step: scaler ", 1, true), "a failed call does not name its argument")

  -- A context that is collected while its children live, then the children.
  training.context = nil
  collectgarbage()
  local scale = gs.scale(training.scaler)
  training.optimizer = nil
  collectgarbage()
  print(string.format("done: %d steps, %d skipped, scale %g, loss %.4f to %.4f", STEPS, tonumber(steps[1]), scale,
                      training.first_loss, training.loss))
  love.event.quit(0) -- the scaler is left to the finalizers that run when the state is closed
end

function love.load()
  open()
  print(ffi.string(gs.C.gsc_library_get_build_info()))
end

function love.update()
  local start = love.timer.getTime()
  repeat slice() until love.timer.getTime() - start > BUDGET or training.steps == STEPS
  times[#times + 1] = love.timer.getTime() - start
  if training.steps == STEPS then finish() end
end

-- Without a window LOVE's handler would wait forever.
function love.errorhandler(message)
  io.stderr:write("error: ", tostring(message), "\n")
  os.exit(1)
end
