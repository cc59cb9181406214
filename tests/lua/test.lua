-- SPDX-License-Identifier: Apache-2.0
-- Tests of the declarations in LuaJIT, and of what a language with a garbage collector meets: buffers that only the
-- library points at, finalizers in any order, the last error of a thread, callbacks. The library itself is tested
-- elsewhere.
--
--     GRADSCALER_LIBRARY=... luajit test.lua <folder of gradscaler.lua> <tests/abi/layout.inc>
package.path = arg[1] .. "/?.lua;" .. package.path
local ffi = require("ffi")
local gs = require("gradscaler")

local tests = {}

local function equal(found, wanted, what)
  if found ~= wanted then error(("%s is %s, not %s"):format(what, tostring(found), tostring(wanted)), 2) end
end

local function refused(says, f, ...)
  local ok, message = pcall(f, ...)
  assert(not ok and message:find(says, 1, true), ("%s in place of %q"):format(tostring(message), says))
end

local function array(n, value)
  local data = ffi.new("float[?]", n)
  for i = 0, n - 1 do data[i] = value end
  return data
end

local function sgd(context, n)
  local C = gs.C
  local weights, grads = array(n, 0), array(n, 1024)
  local optimizer = gs.optimizer(context, {kind = C.GSC_SGD, lr = 1}, gs.list(context, {{weights, n, C.GSC_FP32}}),
                                 gs.list(context, {{grads, n, C.GSC_FP32}}))
  return optimizer, weights, grads
end

function tests.a_library_that_is_not_there_is_named()
  refused('tried "/nowhere/libgradscaler.so.1"', gs.open, "/nowhere/libgradscaler.so.1")
  if ffi.os == "Linux" and not pcall(ffi.load, "libgradscaler.so.1") then
    ffi.cdef("int setenv(const char *name, const char *value, int overwrite);")
    local right = os.getenv("GRADSCALER_LIBRARY")
    for _, wrong in ipairs({"/nowhere/libgradscaler.so.1", ""}) do
      ffi.C.setenv("GRADSCALER_LIBRARY", wrong, 1)
      refused("; the environment variable GRADSCALER_LIBRARY can name the file", gs.open)
    end
    ffi.C.setenv("GRADSCALER_LIBRARY", right, 1)
  end
  gs.open()
end

function tests.structs_and_constants_are_the_recorded_ones()
  local seen, struct = 0, nil
  for line in io.lines(arg[2]) do
    struct = line:match("^#define GSC_STRUCT (.*)$") or struct
    local kind, rest = line:match("^GSC_LAYOUT_(%u+)%((.*)%)$")
    local words = {}
    for word in (rest or ""):gmatch("[-%w_]+") do words[#words + 1] = word end
    -- The table of functions is opaque here.
    if struct ~= "gsc_api" or kind == "VALUE" then
      if kind == "SIZE" then
        equal(ffi.sizeof(struct), tonumber(words[1]), "sizeof " .. struct)
      elseif kind == "FIELD" then
        equal(ffi.offsetof(struct, words[1]), tonumber(words[2]), struct .. "." .. words[1])
      elseif kind == "VALUE" then
        equal(tonumber(gs.C[words[1]]), tonumber(words[2]), words[1])
      end
      seen = seen + (kind and 1 or 0)
    end
  end
  assert(seen > 150)
end

function tests.every_function_is_declared()
  local count = 0
  for name in require("gradscaler_cdef"):gmatch("(gsc_[%w_]+)%(") do
    if not name:find("_fn$") then
      assert(gs.C[name] ~= nil, name)
      count = count + 1
    end
  end
  assert(count > 70)
end

function tests.a_step_and_an_overflow()
  local context = gs.context({num_threads = 1})
  local optimizer, weights, grads = sgd(context, 4)
  local scaler = gs.scaler(context, {init_scale = 1024})
  gs.check(gs.C.gsc_scaler_step_and_update(scaler, optimizer, nil))
  equal(weights[3], -1, "weight")
  grads[2] = 0 / 0
  gs.check(gs.C.gsc_scaler_step_and_update(scaler, optimizer, nil))
  equal(weights[3], -1, "weight")
  equal(gs.scale(scaler), 512, "scale")
  local report = gs.report(scaler)
  equal(tonumber(report.first_element), 2, "first_element")
  equal(tonumber(report.skipped), 1, "skipped")
end

function tests.a_preset_skips_spikes_until_they_are_an_error()
  local context, C = gs.context({num_threads = 1}), gs.C
  local optimizer, weights = sgd(context, 1)
  local values = {preset = C.GSC_PRESET_CHECK, skip_norm = 10, spike_patience = 2, spike_action = C.GSC_SPIKE_ERROR}
  local scaler = gs.scaler(context, values)
  equal(values.preset, C.GSC_PRESET_CHECK, "preset")
  gs.check(C.gsc_scaler_step_and_update(scaler, optimizer, nil))
  equal(weights[0], 0, "weight")
  equal(gs.scale(scaler), 1, "scale")
  local report = gs.report(scaler)
  equal(report.flags, C.GSC_REPORT_SPIKE, "flags")
  equal(report.norm_limit, 10, "norm_limit")
  gs.check(C.gsc_scaler_step_and_update(scaler, optimizer, nil))
  refused("the gradient norm 1024 is above its limit", gs.report, scaler)
  equal(C.gsc_scaler_get_report_sync(scaler, nil, report, nil), C.GSC_ERROR_SPIKES, "status")
  equal(tonumber(report.spikes), 2, "spikes")
  refused("preset", gs.scaler, context, {preset = 99})
end

function tests.gradients_of_before_the_update_are_refused()
  local context, C = gs.context({num_threads = 1}), gs.C
  local first, second = sgd(context, 1), sgd(context, 1)
  local scaler = gs.scaler(context)
  local loss = gs.tensor(array(1, 1), 1, C.GSC_FP32)
  gs.check(C.gsc_scaler_scale(scaler, loss, loss, 1, nil))
  gs.check(C.gsc_scaler_step_and_update(scaler, first, nil))
  equal(C.gsc_scaler_step(scaler, second, nil), C.GSC_ERROR_BAD_STATE, "status")
end

function tests.every_kind_steps()
  local context, C = gs.context({num_threads = 1}), gs.C
  local weights, grads = array(1, 1), array(1, 0.5)
  local params, list = gs.list(context, {{weights, 1, C.GSC_FP32}}), gs.list(context, {{grads, 1, C.GSC_FP32}})
  local options, kind = ffi.new("gsc_optimizer_options"), 0
  -- All that the library has, so that a new one is among them.
  while C.gsc_optimizer_options_init(options, ffi.sizeof(options), kind) == C.GSC_OK do
    weights[0] = 1
    gs.check(C.gsc_optimizer_step(gs.optimizer(context, {kind = kind}, params, list), nil))
    assert(weights[0] < 1, kind)
    kind = kind + 1
  end
  assert(kind > C.GSC_SGD, "the library has no optimizer")
end

-- Only the list knows its arrays, and only the optimizer the lists: what is needed must not be collected.
function tests.buffers_live_as_long_as_the_optimizer()
  local context = gs.context({num_threads = 1})
  local made = {}
  -- Large enough to be given back to the system at once, where a step would end the program.
  for i = 1, 10 do made[i] = sgd(context, 200000) end
  collectgarbage()
  collectgarbage()
  local list, tensor = ffi.new("gsc_tensor_list*[1]"), ffi.new("gsc_tensor")
  for i = 1, 10 do
    gs.check(gs.C.gsc_optimizer_step(made[i], nil))
    gs.check(gs.C.gsc_optimizer_get_grads(made[i], list))
    gs.check(gs.C.gsc_tensor_list_get_tensor(list[0], 0, tensor))
    equal(ffi.cast("float *", tensor.data)[199999], 1024, "gradient")
  end
end

-- A list made wrongly would step on memory that is not the array's.
function tests.lists_take_only_what_is_there()
  local C, context = gs.C, gs.context({num_threads = 1})
  ffi.cdef("typedef struct { float weights[4]; } test_model;")
  local model, numbers = ffi.new("test_model"), array(4, 1)
  local function list(...) return gs.list(context, {{array(1, 0), 1, C.GSC_FP32}, {...}}) end
  refused("tensors[1] has 4 elements, fewer than its count, 5", list, numbers, 5, C.GSC_FP32)
  refused("tensors[1] has 2 elements, fewer than its count, 3", list, ffi.new("uint16_t[2]"), 3, C.GSC_BF16)
  refused("tensors[1] is of double, but its dtype is that of float", list, ffi.new("double[4]"), 4, C.GSC_FP32)
  refused("tensors[1] is of float, but its dtype is that of double", list, numbers, 2, C.GSC_FP64)
  refused("tensors[1] is of float, but its dtype is that of unsigned short", list, numbers, 4, C.GSC_FP16)
  refused("tensors[1] is of char, but", list, ffi.new("int8_t[16]"), 4, C.GSC_FP32)
  refused("tensors[1] is of double, but", list, ffi.cast("double *", numbers), 2, C.GSC_FP32, nil, numbers)
  refused("tensors[1] is table", list, {1, 2, 3}, 3, C.GSC_FP32)
  refused("tensors[1] is nil", list, nil, 3, C.GSC_FP32)
  refused("tensors[1] is 4096", list, 4096, 3, C.GSC_FP32)
  refused("tensors[1] has the count nil", list, numbers, nil, C.GSC_FP32)
  refused("tensors[1] has the count 1.5", list, numbers, 1.5, C.GSC_FP32)
  refused("tensors[1] has the dtype nil", list, numbers, 4)
  refused("tensors[1] has the dtype 99", list, numbers, 4, 99)
  refused("tensors[1] is a pointer, which keeps no memory alive; its fifth entry must be the owner", list, numbers + 1, 3,
          C.GSC_FP32)
  refused("tensors[1] is a part, which keeps no memory alive", list, model.weights, 4, C.GSC_FP32)
  refused("tensors[1] reaches outside of its owner", list, numbers + 1, 4, C.GSC_FP32, nil, numbers)
  refused("tensors[1] reaches outside of its owner", list, numbers - 1, 4, C.GSC_FP32, nil, numbers)
  refused("tensors[1] is a pointer, which keeps no memory alive", list, numbers + 1, 3, C.GSC_FP32, nil, false)
  refused("tensors[1] has the name 3; it must be a string", list, numbers, 4, C.GSC_FP32, 3)
  refused("tensors[1] has the name false", list, numbers, 4, C.GSC_FP32, false)
  list(numbers + 1, 3, C.GSC_FP32, "w", numbers)
  list(model.weights, 4, C.GSC_FP32, nil, model)
  list(ffi.cast("void *", numbers), 4, C.GSC_FP32, nil, true)
  list(ffi.new("float[2][2]"), 4, C.GSC_FP32)
  list(ffi.new("int16_t[2]"), 2, C.GSC_BF16)
  refused("tensors[1] is const, but calls with a list write it", list, ffi.new("const int16_t[2]"), 2, C.GSC_BF16)
  refused("tensors[1] is const", list, ffi.cast("const float *", numbers), 4, C.GSC_FP32, nil, numbers)
  assert(gs.tensor(ffi.new("const float[4]"), 4, C.GSC_FP32).count == 4) -- What scale reads.
  refused("tensors[0] is 'cdata'; it must be a table {array, count, dtype}", gs.list, context, {numbers, 4, C.GSC_FP32})
  refused("values.kind is nil", gs.optimizer, context, {lr = 1}, nil, nil)
  refused("values.kind is 'adamw'", gs.optimizer, context, {kind = "adamw"}, nil, nil)
  refused("data has 4 elements", gs.tensor, numbers, 5, C.GSC_FP32)
  refused("data is of float", gs.tensor, numbers, 4, C.GSC_FP16)
  gs.tensor(numbers + 1, 3, C.GSC_FP32)
end

-- The pointer itself keeps nothing, and the table that was passed may be changed.
function tests.owners_live_as_long_as_the_list()
  local context, lists = gs.context({num_threads = 1}), {}
  for i = 1, 10 do
    local whole = array(200000, 1)
    local tensors = {{whole + 16, 199000, gs.C.GSC_FP32, "w", whole}}
    lists[i] = gs.list(context, tensors)
    tensors[1][1], tensors[1][5], tensors[1] = nil, nil, nil
  end
  collectgarbage()
  collectgarbage()
  for i = 1, 10 do array(200000, 7) end
  local tensor = ffi.new("gsc_tensor")
  for i = 1, 10 do
    gs.check(gs.C.gsc_tensor_list_get_tensor(lists[i], 0, tensor))
    equal(ffi.cast("float *", tensor.data)[198999], 1, "element")
  end
end

-- A collector finalizes in any order, in the middle of an iteration too.
function tests.finalizers_run_in_any_order()
  for i = 1, 200 do
    local context = gs.context({num_threads = 1})
    local optimizer, scaler = sgd(context, 16), gs.scaler(context)
    gs.check(gs.C.gsc_scaler_step(scaler, optimizer, nil))
    if i % 2 == 0 then context = nil end
    if i % 3 == 0 then optimizer = nil end
    if i % 7 == 0 then collectgarbage() end
    gs.check(gs.C.gsc_scaler_update(scaler, nil))
  end
  collectgarbage()
end

-- Coroutines share a thread, and with it the last error: it is read before anything else fails.
function tests.errors_are_sentences_that_name_the_argument()
  local context = gs.context({num_threads = 1})
  refused("init_scale", gs.scaler, context, {init_scale = 0})
  refused("tensors[1]", gs.list, context, {{array(4, 0), 4, gs.C.GSC_FP32}, {array(4, 0), -1, gs.C.GSC_FP32}})
  refused("context", gs.scaler, nil)
  local first = coroutine.wrap(function()
    local _, message = pcall(gs.scaler, context, {init_scale = 0})
    coroutine.yield(message)
    return message
  end)
  first()
  refused("growth_factor", gs.scaler, context, {growth_factor = 1})
  assert(first():find("init_scale", 1, true))
end

-- The loop is compiled by the time that something is to be said: called directly the update would end the program.
function tests.messages_arrive_and_their_errors_do_not_unwind()
  local context = gs.context({num_threads = 1})
  local messages = 0
  gs.set_log(context, function(level, text)
    assert(level == gs.C.GSC_LOG_WARNING and text:find("cannot be lowered", 1, true), text)
    messages = messages + 1
    error("dropped")
  end)
  local scaler = gs.scaler(context, {init_scale = 1, min_scale = 1, floor_action = gs.C.GSC_FLOOR_REPORT})
  local gradients = array(1, 1)
  local grads = gs.list(context, {{gradients, 1, gs.C.GSC_FP32}})
  for i = 1, 400 do
    if i == 300 then gradients[0] = math.huge end
    gs.check(gs.C.gsc_scaler_check(scaler, grads, nil))
    gs.check(gs.interpreted(gs.C.gsc_scaler_update, scaler, nil))
  end
  equal(messages, 101, "messages")
end

local names = {}
for name in pairs(tests) do names[#names + 1] = name end
table.sort(names)
local failed = 0
for _, name in ipairs(names) do
  local ok, message = xpcall(tests[name], debug.traceback)
  print((ok and "ok      " or "FAILED  ") .. name .. (ok and "" or ": " .. message))
  failed = failed + (ok and 0 or 1)
end
os.exit(failed == 0, true) -- closes the state: what is left is finalized
