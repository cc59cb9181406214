-- SPDX-License-Identifier: Apache-2.0
-- The code of docs/hosts.md, which page_snippets.py finds here word for word.
--
--     GRADSCALER_LIBRARY=... luajit page.lua <folder of gradscaler.lua>
package.path = arg[1] .. "/?.lua;" .. package.path
local ffi = require("ffi")
local n = 4
local weights, gradients = ffi.new("float[?]", n), ffi.new("uint16_t[?]", n)
for i = 0, n - 1 do gradients[i] = 0x7800 end -- 32768 in fp16, half the scale

local gs = require("gradscaler")
local C = gs.open() -- GRADSCALER_LIBRARY, or the system's search
local context = gs.context()
local params = gs.list(context, {{weights, n, C.GSC_FP32}}) -- an array of ffi.new; a pointer needs its owner as well
local grads = gs.list(context, {{gradients, n, C.GSC_FP16, "layer1.weight"}})
local optimizer = gs.optimizer(context, {kind = C.GSC_ADAMW, lr = 2e-3}, params, grads)
local scaler = gs.scaler(context)
gs.check(C.gsc_scaler_step(scaler, optimizer, nil))
gs.check(C.gsc_scaler_update(scaler, nil))

for i = 0, n - 1 do assert(math.abs(weights[i] + 2e-3) < 1e-6) end -- Adam's first step is the learning rate
