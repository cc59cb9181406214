-- SPDX-License-Identifier: Apache-2.0
-- The library in LuaJIT: every function of gradscaler.h as gs.C.gsc_...; here is what Lua needs beside them: opening the
-- library, statuses as errors, objects and buffers that live as long as something uses them. docs/hosts.md has the rules.
--
--     local gs = require("gradscaler")
--     gs.open()                                          -- GRADSCALER_LIBRARY, or the system's search
--     local context = gs.context()
--     local weights, gradients = ffi.new("float[?]", n), ffi.new("float[?]", n)
--     local optimizer = gs.optimizer(context, {kind = gs.C.GSC_ADAMW, lr = 2e-3},
--                                    gs.list(context, {{weights, n, gs.C.GSC_FP32}}),
--                                    gs.list(context, {{gradients, n, gs.C.GSC_FP32}}))
--     local scaler = gs.scaler(context, {growth_interval = 100})
--     gs.check(gs.C.gsc_scaler_step(scaler, optimizer, nil))
local ffi = require("ffi")
ffi.cdef(require("gradscaler_cdef"))

local gs = {}

-- What an object needs as long as it lives: buffers that the library points at, lists, callbacks.
local needs = setmetatable({}, {__mode = "k"})

local function keep(object, ...)
  needs[object] = {...}
  return object
end

local function name_of_library()
  if ffi.os == "Windows" then return "gradscaler.dll" end
  return ffi.os == "OSX" and "libgradscaler.1.dylib" or "libgradscaler.so.1"
end

--- Loads the library from `path`; without it from the file that GRADSCALER_LIBRARY names, then by the system's search.
--- It stays loaded: gs.C is never collected, so that no finalizer can run after it.
function gs.open(path)
  if gs.C then return gs.C end
  local environment = os.getenv("GRADSCALER_LIBRARY")
  local paths = path and {path} or {name_of_library()}
  if not path and environment and environment ~= "" then table.insert(paths, 1, environment) end
  local message = "cannot load gradscaler"
  for _, candidate in ipairs(paths) do
    local found, library = pcall(ffi.load, candidate)
    if found and library.gsc_library_get_abi_version() == library.GSC_ABI_VERSION then
      gs.C = library
      return library
    end
    message = ("%s; tried %q: %s"):format(message, candidate, found and "it speaks another ABI" or library)
  end
  error(message, 2)
end

--- Raises the library's sentence unless `status` is GSC_OK. To be called before anything else of this thread fails.
function gs.check(status)
  if status ~= 0 then error(ffi.string(gs.C.gsc_error_get_message()), 2) end
end

-- The object that `create(..., out)` makes. It is destroyed when it is collected, in any order with others.
local function make(kind, ...)
  local out = ffi.new("gsc_" .. kind .. "*[1]")
  local arguments = {n = select("#", ...) + 1, ...}
  arguments[arguments.n] = out
  local status = gs.C["gsc_" .. kind .. "_create"](unpack(arguments, 1, arguments.n))
  if status ~= 0 then error(ffi.string(gs.C.gsc_error_get_message()), 3) end
  return ffi.gc(out[0], gs.C["gsc_" .. kind .. "_destroy"])
end

local function fill(options, values)
  for key, value in pairs(values or {}) do options[key] = value end
  return options
end

--- A device. `values`: fields of gsc_context_options; by default the CPU with all its threads.
function gs.context(values)
  local options = ffi.new("gsc_context_options")
  gs.check(gs.C.gsc_context_options_init(options, ffi.sizeof(options)))
  return keep(make("context", fill(options, values)), values)
end

--- `count` elements of `dtype` in an array that something else keeps alive, for calls that take tensors.
function gs.tensor(data, count, dtype)
  return ffi.new("gsc_tensor", {data = data, count = count, dtype = dtype})
end

--- A list of {array, count, dtype, name}, which it keeps alive.
function gs.list(context, tensors)
  local raw, names = ffi.new("gsc_tensor[?]", #tensors), ffi.new("const char *[?]", #tensors)
  for i, tensor in ipairs(tensors) do
    raw[i - 1].data, raw[i - 1].count, raw[i - 1].dtype = tensor[1], tensor[2], tensor[3]
    names[i - 1] = tensor[4]
  end
  return keep(make("tensor_list", context, raw, #tensors, names), tensors)
end

--- `values`: fields of gsc_optimizer_options, over the defaults of values.kind. Keeps the lists, and so their buffers.
function gs.optimizer(context, values, params, grads, model_copy)
  local options = ffi.new("gsc_optimizer_options")
  gs.check(gs.C.gsc_optimizer_options_init(options, ffi.sizeof(options), values.kind))
  local made = make("optimizer", context, fill(options, values), params, grads, model_copy, nil, 0)
  return keep(made, params, grads, model_copy)
end

--- `values`: fields of gsc_scaler_options, over PyTorch's policy.
function gs.scaler(context, values)
  local options = ffi.new("gsc_scaler_options")
  gs.check(gs.C.gsc_scaler_options_init(options, ffi.sizeof(options), gs.C.GSC_PRESET_TORCH))
  return make("scaler", context, fill(options, values))
end

--- A gsc_report; of the gradients, or without them of all of the last update.
function gs.report(scaler, grads)
  local report = ffi.new("gsc_report")
  report.struct_size = ffi.sizeof(report)
  gs.check(gs.C.gsc_scaler_get_report_sync(scaler, grads, report, nil))
  return report
end

--- The scale.
function gs.scale(scaler)
  local scale = ffi.new("float[1]")
  gs.check(gs.C.gsc_scaler_get_scale_sync(scaler, scale, nil))
  return scale[0]
end

--- f(...), for calls that may call back into Lua from C: where they are compiled LuaJIT ends the program with "bad
--- callback".
function gs.interpreted(f, ...) return f(...) end
jit.off(gs.interpreted)

--- Hands the messages of a context to receive(level, text). What `receive` raises is dropped, since it must not unwind
--- through C. From now on calls that may log go through gs.interpreted. A callback is for good: LuaJIT has some hundred of
--- them, and the context may log as long as something made with it lives.
function gs.set_log(context, receive)
  local callback = ffi.cast("gsc_log_fn", function(_, level, text) pcall(receive, level, ffi.string(text)) end)
  gs.check(gs.C.gsc_context_set_log(context, callback, nil))
end

return gs
