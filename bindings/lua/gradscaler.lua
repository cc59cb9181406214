-- SPDX-License-Identifier: Apache-2.0
-- The library in LuaJIT: every function of gradscaler.h as gs.C.gsc_...; here is what Lua needs in addition: opening
-- the library, statuses as errors, objects and buffers that live as long as they are used. docs/hosts.md has the rules.
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
  if not path then message = message .. "; the environment variable GRADSCALER_LIBRARY can name the file" end
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

-- What C calls the elements of a dtype, and their size.
local function elements_of(dtype)
  local C = gs.C
  if dtype == C.GSC_FP32 then return 4, "float" end
  if dtype == C.GSC_FP64 then return 8, "double" end
  if dtype == C.GSC_FP16 or dtype == C.GSC_BF16 then return 2, "unsigned short", "short" end
end

-- The C type of the elements of `data`, whether it is an allocation ("array"), a part of one ("part") or a "pointer",
-- and whether it is const. Returns nothing for anything else.
local function content(data)
  local text = type(data) == "cdata" and tostring(ffi.typeof(data)):match("^ctype<(.*)>$") or ""
  local plain, const = text:gsub("^const ", "")
  text = plain:gsub("^volatile ", "")
  for kind, pattern in pairs({array = " %[[%d?]+%]", part = " %(&%)%[%d+%]", pointer = " %*$"}) do
    local element = text:match("^([%w_ ]+)" .. pattern)
    if element then return element, kind, const > 0 end
  end
end

-- Raises a sentence that names `what` unless `count` elements of `dtype` fit into `data`, of their type. A pointer has
-- no length, and the collector does not follow it: with `owned` it needs an owner, the C array that it points into or
-- another object that keeps the memory.
local function require_room(what, data, count, dtype, owned, owner)
  local function refuse(message, ...) error(what .. message:format(...), 0) end
  local element, kind, const = content(data)
  if not element then refuse(" is %s; it must be an array of C, or a pointer and its owner", tostring(data)) end
  local size, wanted, other = elements_of(dtype)
  if not size then refuse(" has the dtype %s; it must be GSC_FP16, GSC_BF16, GSC_FP32 or GSC_FP64", tostring(dtype)) end
  if type(count) ~= "number" or count % 1 ~= 0 then
    refuse(" has the count %s; it must be a whole number", tostring(count))
  end
  if element ~= wanted and element ~= other and not (kind == "pointer" and element == "void") then
    refuse(" is of %s, but its dtype is that of %s", element, wanted)
  end
  if kind ~= "pointer" and count * size > ffi.sizeof(data) then
    refuse(" has %d elements, fewer than its count, %d", ffi.sizeof(data) / size, count)
  end
  if owned and const then refuse(" is const, but calls with a list write it; pass an array that can be written") end
  if not owned or kind == "array" then return end
  if not owner then
    refuse(" is a %s, which keeps no memory alive; its fifth entry must be the owner", kind)
  end
  local _, owners = content(owner)
  if owners ~= "array" then return end
  local offset = ffi.cast("const char *", data) - ffi.cast("const char *", owner)
  if offset < 0 or offset + count * size > ffi.sizeof(owner) then refuse(" reaches outside of its owner") end
end

--- `count` elements of `dtype` in an array that something else keeps alive, for calls that take tensors.
function gs.tensor(data, count, dtype)
  local fits, message = pcall(require_room, "data", data, count, dtype)
  if not fits then error(message, 2) end
  return ffi.new("gsc_tensor", {data = ffi.cast("void *", data), count = count, dtype = dtype})
end

--- A list of {array, count, dtype, name, owner}. It keeps arrays of ffi.new alive, which need no owner. A pointer, or an
--- array within a struct, keeps nothing alive: `owner` is the array that it is in, or what else keeps the memory; true
--- for memory that is never freed. Errors count from 0, as the library's do.
function gs.list(context, tensors)
  local raw, names, held = ffi.new("gsc_tensor[?]", #tensors), ffi.new("const char *[?]", #tensors), {}
  for i, tensor in ipairs(tensors) do
    if type(tensor) ~= "table" then
      error(("tensors[%d] is '%s'; it must be a table {array, count, dtype}"):format(i - 1, type(tensor)), 2)
    end
    local data, count, dtype, name, owner = tensor[1], tensor[2], tensor[3], tensor[4], tensor[5]
    local fits, message = pcall(require_room, ("tensors[%d]"):format(i - 1), data, count, dtype, true, owner)
    if not fits then error(message, 2) end
    if name ~= nil and type(name) ~= "string" then
      error(("tensors[%d] has the name %s; it must be a string"):format(i - 1, tostring(name)), 2)
    end
    raw[i - 1].data, raw[i - 1].count, raw[i - 1].dtype = ffi.cast("void *", data), count, dtype
    names[i - 1] = name
    held[i] = {data, owner}
  end
  return keep(make("tensor_list", context, raw, #tensors, names), held)
end

--- `values`: fields of gsc_optimizer_options, over the defaults of values.kind. Keeps the lists, and so their buffers.
function gs.optimizer(context, values, params, grads, model_copy)
  if type(values.kind) ~= "number" then
    local shown = type(values.kind) == "string" and "'" .. values.kind .. "'" or tostring(values.kind)
    error(("values.kind is %s; it must be GSC_SGD, GSC_ADAMW or another kind"):format(shown), 2)
  end
  local options = ffi.new("gsc_optimizer_options")
  gs.check(gs.C.gsc_optimizer_options_init(options, ffi.sizeof(options), values.kind))
  local made = make("optimizer", context, fill(options, values), params, grads, model_copy, nil, 0)
  return keep(made, params, grads, model_copy)
end

--- `values`: fields of gsc_scaler_options, over the policy of values.preset, without it PyTorch's.
function gs.scaler(context, values)
  local options, fields = ffi.new("gsc_scaler_options"), {}
  for key, value in pairs(values or {}) do fields[key] = value end
  local preset = fields.preset or gs.C.GSC_PRESET_TORCH
  fields.preset = nil
  gs.check(gs.C.gsc_scaler_options_init(options, ffi.sizeof(options), preset))
  return make("scaler", context, fill(options, fields))
end

--- A gsc_report; of the gradients, or without them of all of the last update. Raises under GSC_FLOOR_ERROR and
--- GSC_SPIKE_ERROR; gs.C.gsc_scaler_get_report_sync fills in the report there too.
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
