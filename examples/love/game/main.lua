-- SPDX-License-Identifier: Apache-2.0
-- A game in LOVE 11 that trains a policy within love.update, with the library through LuaJIT's FFI: fp16 gradients, a
-- loss scale that starts too high, AdamW, 1 ms a frame. It shows scale and loss, and ends with exit code 0 if the loss has
-- fallen, steps were skipped and applied, and a failed call names its argument. It needs no window: conf.lua.
-- GRADSCALER_LIBRARY names the shared library.
local ffi = require("ffi")
local policy = require("policy")

local STEPS, SHOW_EVERY, ROWS, SLICE, BUDGET = 300, 60, 64, 8, 0.001

ffi.cdef((love.filesystem.read("gradscaler.cdef")))
local C = ffi.C -- constants only; functions are in the library
local gsc = ffi.load(assert(os.getenv("GRADSCALER_LIBRARY"), "GRADSCALER_LIBRARY is not set"))

-- The message belongs to this operating-system thread; nothing moves the interpreter between the two calls.
local function check(status)
  if status ~= C.GSC_OK then error(ffi.string(gsc.gsc_error_get_message()), 0) end
end

-- What `out` received, destroyed by the collector. The finalizer holds the library: when a state is closed, LuaJIT runs
-- finalizers in an order of its own, and the library must not go before its objects.
local function owned(out, destroy)
  local library = gsc
  return ffi.gc(out[0], function(object) return library and destroy(object) end)
end

-- A list over one FFI array. `arrays` keeps the memory, which the library does not.
local arrays = {}
local function list_of(context, array, count, dtype)
  local tensor, out = ffi.new("gsc_tensor[1]"), ffi.new("gsc_tensor_list*[1]")
  tensor[0].data, tensor[0].count, tensor[0].dtype = array, count, dtype
  check(gsc.gsc_tensor_list_create(context, tensor, 1, nil, out))
  arrays[#arrays + 1] = array
  return owned(out, gsc.gsc_tensor_list_destroy), tensor
end

local training = {steps = 0, row = 0, loss = 0, first_loss = nil}

local function open()
  local out = ffi.new("gsc_context*[1]")
  check(gsc.gsc_context_create(nil, out))
  training.context = owned(out, gsc.gsc_context_destroy)

  policy.initialize()
  local halfs = ffi.new("uint16_t[?]", policy.count)
  local params = list_of(training.context, policy.weights, policy.count, C.GSC_FP32)
  local grads, half_tensor = list_of(training.context, halfs, policy.count, C.GSC_FP16)
  local _, sum_tensor = list_of(training.context, policy.sums, policy.count, C.GSC_FP32)
  training.halfs, training.sums = half_tensor, sum_tensor

  local adamw = ffi.new("gsc_optimizer_options")
  check(gsc.gsc_optimizer_options_init(adamw, ffi.sizeof(adamw), C.GSC_ADAMW))
  adamw.lr = 5e-3
  out = ffi.new("gsc_optimizer*[1]")
  check(gsc.gsc_optimizer_create(training.context, adamw, params, grads, nil, nil, 0, out))
  training.optimizer = owned(out, gsc.gsc_optimizer_destroy)

  local options = ffi.new("gsc_scaler_options")
  check(gsc.gsc_scaler_options_init(options, ffi.sizeof(options), C.GSC_PRESET_TORCH))
  options.init_scale, options.growth_interval = 2 ^ 24, 100
  out = ffi.new("gsc_scaler*[1]")
  check(gsc.gsc_scaler_create(training.context, options, out))
  training.scaler = owned(out, gsc.gsc_scaler_destroy)
end

local scale = ffi.new("float[1]")

-- Some rows of the batch; after the last one the gradients become fp16, and the library does the rest.
local function slice()
  if training.row == 0 then
    ffi.fill(policy.sums, 4 * policy.count)
    training.batch_loss = 0
    check(gsc.gsc_scaler_get_scale_sync(training.scaler, scale, nil))
  end
  for _ = 1, SLICE do
    training.batch_loss = training.batch_loss + policy.add_gradients(ROWS, scale[0])
  end
  training.row = training.row + SLICE
  if training.row < ROWS then return end
  check(gsc.gsc_ops_cast(training.context, training.sums, training.halfs, 1, nil))
  check(gsc.gsc_scaler_step_and_update(training.scaler, training.optimizer, nil))
  training.row, training.steps, training.loss = 0, training.steps + 1, training.batch_loss
  training.first_loss = training.first_loss or training.loss
  if training.steps % SHOW_EVERY == 0 then
    print(string.format("step %3d  scale %8g  loss %.4f", training.steps, scale[0], training.loss))
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
  check(gsc.gsc_optimizer_get_steps_sync(training.optimizer, steps, steps + 1, nil))
  assert(steps[0] + steps[1] == STEPS and steps[1] > 0, "steps were not counted, or none was skipped")
  assert(training.loss < 0.2 * training.first_loss, "the loss has not fallen")
  local ok, message = pcall(check, gsc.gsc_scaler_step(nil, training.optimizer, nil))
  assert(not ok and message:find("^gsc_scaler_step: scaler "), "a failed call does not name its argument")

  -- A context that is collected while its children live, then the children.
  training.context = nil
  collectgarbage()
  check(gsc.gsc_scaler_get_scale_sync(training.scaler, scale, nil))
  training.optimizer = nil
  collectgarbage()
  print(string.format("done: %d steps, %d skipped, scale %g, loss %.4f to %.4f", STEPS, tonumber(steps[1]), scale[0],
                      training.first_loss, training.loss))
  love.event.quit(0) -- the scaler is left to the finalizers that run when the state is closed
end

function love.load()
  open()
  print(ffi.string(gsc.gsc_library_get_build_info()))
end

function love.update()
  local start = love.timer.getTime()
  repeat slice() until love.timer.getTime() - start > BUDGET or training.steps == STEPS
  times[#times + 1] = love.timer.getTime() - start
  if training.steps == STEPS then finish() end
end

-- Without a window LOVE's own handler would wait for nobody.
function love.errorhandler(message)
  io.stderr:write("error: ", tostring(message), "\n")
  os.exit(1)
end
