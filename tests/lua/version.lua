-- SPDX-License-Identifier: Apache-2.0
-- tests/abi/version_test.c for LuaJIT: the module of another version trains with this library. What it reads of a struct
-- that the library fills in is 0 where the library knows no field, and what it sets there is refused.
--
--     GRADSCALER_LIBRARY=... luajit version.lua <folder of gradscaler.lua>
package.path = arg[1] .. "/?.lua;" .. package.path
local ffi = require("ffi")
local gs = require("gradscaler")
local C = gs.open()
local n = 4
local weights, gradients = ffi.new("float[?]", n), ffi.new("float[?]", n)
local context = gs.context({num_threads = 1})
local grads = gs.list(context, {{gradients, n, C.GSC_FP32}})
local optimizer = gs.optimizer(context, {kind = C.GSC_ADAMW, lr = 0.1}, gs.list(context, {{weights, n, C.GSC_FP32}}), grads)
local scaler = gs.scaler(context, {init_scale = 1024})
for _ = 1, 60 do
  for i = 0, n - 1 do gradients[i] = (weights[i] - 3) * gs.scale(scaler) end
  gs.check(C.gsc_scaler_step(scaler, optimizer, nil))
  gs.check(C.gsc_scaler_update(scaler, nil))
end
for i = 0, n - 1 do assert(math.abs(weights[i] - 3) < 1) end
local report = gs.report(scaler, grads)
assert(report.updates == 60 and report.skipped == 0 and report.struct_size == ffi.sizeof(report))

local state = ffi.new("gsc_scaler_state")
state.struct_size = ffi.sizeof(state)
gs.check(C.gsc_scaler_get_state_sync(scaler, state, nil))
gs.check(C.gsc_scaler_set_state(scaler, state, nil))

local is_newer, later = pcall(function() return report.later end)
assert(is_newer == (arg[1]:find("newer$") ~= nil))
if is_newer then
  assert(later == 0)
  local function refused(made, message)
    assert(not made and message:find("the program sets a field that this version of the library does not know", 1, true))
  end
  refused(pcall(gs.context, {later = 1}))
  refused(pcall(gs.scaler, context, {later = 1}))
end
