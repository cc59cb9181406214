# SPDX-License-Identifier: Apache-2.0
"""The objects of a random program, in the library and in the oracle, and the comparison of both.

The library is called by tests/support/c_library.py. Every list keeps two copies of its buffers: `arrays`, which the
library works on, and `model`. random_programs.py has the calls.
"""
import copy
import ctypes
import math
import pathlib
import sys
import types
from ctypes import byref

import codes
import numpy as np
import oracle
from oracle import FP64, STORED

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bindings/generate"))
import api  # noqa: E402

API = api.load(ROOT)
KINDS = dict(enumerate(API.kinds))
FLAGS = {field.name: 1 << i for i, field in enumerate(API.type("gsc_optimizer_options").flags)}

OK, INVALID, BAD_STATE, SCALE_FLOOR, SPIKES = 0, 1, 2, 7, 10
# A column is summed over 16 rows in fp32; what follows is fp64.
NORM_ERROR = 17 * 2.0 ** -24
RATIO_BITS = 8
READY, CHECKED, UNSCALED, STEPPED = "READY", "CHECKED", "UNSCALED", "STEPPED"


def fields(struct):
    """A copy of a struct that is not the library's."""
    return types.SimpleNamespace(**{name: getattr(struct, name) for name, _ in struct._fields_})


def same(a, b, dtype=None):
    """Equal bits; all NaN are one."""
    if dtype == codes.E4M3:
        a, b = (np.where(x & 0x7f == 0x7f, 0x7f, x) for x in (a, b))
    elif a.dtype == np.uint16 and dtype != codes.E6M10:
        a, b = oracle.widen(a, oracle.BF16), oracle.widen(b, oracle.BF16)
    if a.dtype.kind != "f":
        return bool((a == b).all())
    bits = f"i{a.dtype.itemsize}"
    return bool(((a.view(bits) == b.view(bits)) | (np.isnan(a) & np.isnan(b))).all())


def memory(address, count, dtype):
    kind = np.ctypeslib.as_ctypes_type(dtype)
    return np.asarray((kind * count).from_address(address)) if count else np.zeros(0, dtype)


def values_of(option, values):
    if option not in values:
        raise SystemExit(f"world.py has no values of the option {option}: the oracle would never see it")
    return values[option]


def is_near(norm, exact):
    return norm == exact or math.isnan(norm) and math.isnan(exact) or abs(norm - exact) <= NORM_ERROR * exact < math.inf


class List:
    def __init__(self, world, context, dtypes, counts, fill):
        self.dtypes, self.counts, self.is_away = dtypes, counts, context is world.away
        # Any alignment that the dtype allows.
        shifts = world.random.integers(0, 9, len(counts))
        self.arrays = [np.zeros(n + s, STORED[d])[s:] for n, s, d in zip(counts, shifts, dtypes, strict=True)]
        for a, d in zip(self.arrays, dtypes, strict=True):
            a[:] = fill(d, a.size)
        lib = world.lib
        tensors = (lib.gsc_tensor * len(counts))()
        for t, a, d in zip(tensors, self.arrays, dtypes, strict=True):
            t.data, t.count, t.dtype = a.ctypes.data, a.size, d
        self.handle = ctypes.c_void_p()
        lib.must(lib.tensor_list_create(context, tensors, len(counts), None, byref(self.handle)))
        self.model = [a.copy() for a in self.arrays]
        self.present = [True] * len(counts)
        self.factor = self.norms_kept = None  # memory of the device factor and of the norms of tensors
        self.check = None
        # By which the next norm is judged, and with the norm that was judged last, at so many updates.
        self.norms = self.next_norms = oracle.Norms()
        self.judged_at = -1
        self.fp32_limit = False
        self.ready()

    def ready(self):
        self.stage = READY
        self.covered = [False] * len(self.counts)
        self.max_norm, self.by_amax, self.value = None, False, math.inf
        self.norm_applied = self.value_applied = self.unscaled = self.left_scaled = False
        self.used = False
        self.multiplier = None

    def times_factor(self, inv_scale):
        """What the gradients are still to be multiplied by."""
        if self.unscaled:
            return np.float32(1)
        return inv_scale if self.factor is None else inv_scale * self.factor[0]

    def multiply(self, inv_scale):
        """The same in an iteration, whose first check reads the device factor."""
        if self.multiplier is None or self.unscaled:
            self.multiplier = self.times_factor(inv_scale)
        return self.multiplier

    def in_part(self):
        return self.stage == READY and any(self.covered)

    def tensors(self):
        return [(m if here else None, d) for m, here, d in zip(self.model, self.present, self.dtypes, strict=True)]

    def clip(self):
        if self.max_norm is None or self.norm_applied or self.check is None or self.check.skips:
            return np.float32(1)
        return oracle.clip_factor(self.max_norm, self.check.grad_amax if self.by_amax else self.check.grad_norm)

    def get(self, i):
        return self.model[i]

    def put(self, i, numbers, _=None):
        self.model[i][:] = numbers

    def rewrite(self, clip, value, inv=1):
        for m, here, d in zip(self.model, self.present, self.dtypes, strict=True):
            if here:
                m[:] = oracle.narrow(oracle.prepare(m, d, inv, clip, value), d)


class State:
    """A slot that the library made: its memory as arrays, and what the oracle expects there. Codes have scales."""

    def __init__(self, world, o, slot, dtypes, counts, name):
        handle, got, tensor = ctypes.c_void_p(), ctypes.c_char_p(), world.lib.gsc_tensor()
        world.lib.must(world.lib.optimizer_get_state(o.handle, slot, byref(handle), byref(got)))
        assert got.value.decode() == name, (got.value, name)
        start = o.groups[0].initial_accumulator_value if name == "sum" else 0.0
        self.dtypes, self.arrays, self.scales = dtypes, [], []
        for i, dtype in enumerate(dtypes):
            world.lib.must(world.lib.tensor_list_get_tensor(handle, i, byref(tensor)))
            assert (tensor.dtype, tensor.count) == (dtype, counts[i]), (name, tensor.dtype, dtype, o.groups[0])
            self.arrays.append(memory(tensor.data, tensor.count, codes.STORED[dtype]))
            self.scales.append(memory(tensor.scale, -(-tensor.count // 32) if tensor.scale else 0,
                                      np.uint16 if tensor.dtype == codes.LOG8 else np.uint8))
        self.model = [np.zeros_like(a) for a in self.arrays]
        self.scale_model = [s.copy() for s in self.scales]
        for i, a in enumerate(self.arrays):
            if start:
                self.put(i, np.full(a.size, start, a.dtype if a.dtype.kind == "f" else np.float32))

    def get(self, i):
        if self.dtypes[i] not in codes.MOST:
            return self.model[i]
        return codes.decode(self.dtypes[i], self.model[i], self.scale_model[i])

    def put(self, i, numbers, draws=None):
        if self.dtypes[i] not in codes.MOST:
            self.model[i][:] = numbers
            return
        self.model[i][:], scales = codes.encode(self.dtypes[i], numbers, draws)
        if scales is not None:
            self.scale_model[i][:] = scales


class World:
    def __init__(self, lib, seed):
        self.lib, self.random = lib, np.random.default_rng(seed)
        pick = self.pick
        # The scaler's, and one for lists that are away from it.
        self.context, self.away = self.make_context(), self.make_context()
        self.make_scaler()
        self.lists, self.optimizers = [], []
        for _ in range(pick([1, 1, 2, 3])):
            self.make_optimizer()
        self.last = None
        self.history = []
        self.log = [f"scaler {vars(self.options)}"]

    def close(self):
        for o in self.optimizers:
            self.lib.library.gsc_optimizer_destroy(o.handle)
            for some in [o.params, o.grads, *o.copy, *o.state]:
                self.lib.library.gsc_tensor_list_destroy(some.handle if isinstance(some, List) else None)
        self.lib.library.gsc_scaler_destroy(self.scaler)
        for context in (self.context, self.away):
            self.lib.library.gsc_context_destroy(context)

    # -- Choices

    def pick(self, choices):
        return choices[int(self.random.integers(0, len(choices)))]

    def chance(self, p):
        return self.random.random() < p

    def numbers(self, dtype, count, spread=8.0):
        x = self.random.standard_normal(count) * np.exp2(self.random.uniform(-spread, spread / 2, count))
        x[self.random.random(count) < 0.05] = 0.0
        return oracle.narrow(x, dtype)

    def gradients(self, grads):
        """Gradients of a backward pass: usually finite, sometimes an inf, a NaN or a value near the limits."""
        rare = self.chance(0.3)
        for m, a, d in zip(grads.model, grads.arrays, grads.dtypes, strict=True):
            a[:] = self.numbers(d, a.size, self.pick([1.0, 8.0, 20.0]))
            if rare and a.size and self.chance(0.5):
                at = self.random.integers(0, a.size, self.pick([1, 1, 3]))
                top = np.finfo(np.float32 if d == oracle.BF16 else STORED[d]).max
                some = self.pick([math.inf, -math.inf, math.nan, 0.99 * top, -0.0, 1e-40])
                a[at] = oracle.narrow(np.array([some], np.float64), d)
            m[:] = a

    def scaler_options(self, options):
        pick, o = self.pick, options
        if self.chance(0.3):
            preset = pick(self.lib.codes_of("scaler_options_init", "gsc_scaler_options"))
            self.must("scaler_options_init", byref(o), o.struct_size, preset)
            o.growth_interval = pick([1, 2, 3])
            return
        self.must("scaler_options_init", byref(o), o.struct_size, 0)
        scale = pick([1.0, 2.0 ** 16, 1024.0, 3.0, 0.25, 2.0 ** -20, 2.0 ** 30])
        recovery = pick([(0.0, 0), (scale, 1), (scale * 4, 2)])
        values = {
            "init_scale": [scale], "growth_factor": [2.0, 2.0, 1.5, 1.1, 16.0], "growth_interval": [1, 2, 3, 5],
            "backoff_factor": [0.5, 0.5, 0.7, 0.1, 0.0625], "min_scale": [0.0, 0.0, scale, scale / 3, scale / 1e3],
            "max_scale": [0.0, 0.0, scale, scale * 3, 3.4028234663852886e38], "hysteresis": [1, 1, 2, 3],
            "hysteresis_refill": [0, 1, 2], "growth_timing": [0, 1, 2], "overflow_tolerance": [0.0, 0.0, 0.3, 0.5, 1.0],
            "recovery_threshold": [recovery[0]], "recovery_interval": [recovery[1]], "floor_action": [0, 1, 2],
            "floor_patience": [1, 1, 2], "history_capacity": [0, 1, 3, 16], "enabled": [1],
            "skip_norm": [0.0, 0.0, 0.0, 1.0, 100.0], "spike_factor": [0.0, 0.0, 1.0, 1.5, 4.0],
            "spike_deviations": [0.0, 0.5, 5.0], "spike_window": [1, 2, 5, 128], "spike_warmup": [0, 0, 2],
            "spike_patience": [0, 1, 3], "spike_action": [0, 0, 1]}
        o.flags = pick(range(32))
        for field in API.type("gsc_scaler_options").fields:
            setattr(o, field.name, pick(values_of(field.name, values)))

    def make_context(self):
        options, context = self.lib.struct("gsc_context_options"), ctypes.c_void_p()
        self.must("context_options_init", byref(options), options.struct_size)
        options.num_threads, options.cpu_target = self.pick([1, 1, 2, 3]), self.pick([0, 0, 1])
        self.must("context_create", byref(options), byref(context))
        return context

    def make_scaler(self):
        options = self.lib.struct("gsc_scaler_options")
        self.scaler_options(options)
        options.enabled = 0 if self.chance(0.1) else 1
        self.scaler = ctypes.c_void_p()
        self.must("scaler_create", self.context, byref(options), byref(self.scaler))
        self.options = fields(options)
        self.policy = oracle.Policy(self.options)

    def hyper(self, options, kind, flags=None, momenta=(0.0, 0.9, 0.5), decays=(0.0, 0.0, 0.5, 0.99)):
        """Random values of the options that the kind uses."""
        pick, o, table = self.pick, options, KINDS[kind]
        self.must("optimizer_options_init", byref(o), o.struct_size, kind)
        usual = ("lr", "beta1", "beta2", "eps", "weight_decay")  # which many programs leave at their defaults
        varied = self.chance(0.7)
        choices = {
            "lr": [0.0, 1e-3, 0.1, 1.0, 0.3], "beta1": [0.0, 0.9, 0.3, 0.5, 0.95],
            "beta2": [0.0, 0.999, 0.99, 0.7, 0.9999], "eps": [0.0, 1e-8, 1e-6, 1e-3],
            "weight_decay": [0.0, 0.01, 0.1, 1.0], "momentum": momenta, "dampening": [0.0, 0.1, 0.5],
            "weight_step_power": [0.0, 1.0, 2.0], "weight_lr_power": [0.0, 1.0, 2.0], "warmup_steps": [0, 1, 5],
            "beta3": [0.9999, 0.99, 0.5], "beta3_warmup": [0, 5, 100], "alpha": [0.0, 0.99, 0.5, 5.0],
            "rho": [0.0, 0.9, 0.99, 0.5], "eps_root": [0.0, 1e-12, 1e-3], "momentum_decay": [0.0, 4e-3, 1.0],
            "trust_coefficient": [0.0, 1e-3, 1.0], "lr_decay": [0.0, 0.1], "initial_accumulator_value": [0.0, 0.1, 1.0]}
        for name, option in table.options.items():
            narrower = api.range_of(option.get("range", "finite"))
            values = [value for value in values_of(name, choices)
                      if (value or narrower.has_low or narrower.low is None)
                      and (narrower.high is None or value < float(narrower.high))]
            if (varied or name not in usual) and (name != "eps_root" or self.chance(0.5)):
                setattr(o, name, pick(values))
        o.ema_decay = pick(decays)
        if kind not in (oracle.ADAMW_SCHEDULE_FREE, oracle.SGD_SCHEDULE_FREE) and self.chance(0.3):
            o.param_min, o.param_max = pick([(-1.0, 1.0), (-0.3, 0.7), (0.0, 1e-3), (-1e30, 0.0), (0.1, 0.1),
                                             (1.5, 3e38)])
        if flags is not None:
            o.flags = flags
        else:
            o.flags = (oracle.MAXIMIZE if self.chance(0.2) else 0) | pick(
                [0, 0, 0, oracle.ZERO_GRADS, oracle.WRITE_GRADS])
            for name in (*table.flags, "ema_warmup", "count_unchanged"):
                if self.chance(0.4) and (name != "nesterov" or o.momentum):
                    o.flags |= FLAGS[name]
        if o.flags & oracle.NESTEROV:
            o.dampening = 0.0

    def make_optimizer(self):
        lib, pick = self.lib, self.pick
        context = self.away if self.chance(0.2) else self.context
        sizes = pick([[1, 2, 3, 17], [64, 100], [0, 5, 40, 129], [700, 33], [1000, 2047, 6000], [17000, 3]])
        counts = [pick(sizes) for _ in range(pick([1, 2, 3, 6]))]
        state_format, master_format = pick([0, 0, 0, 1, 2]), pick([0, 0, 0, 1, 2, 3])
        usual = [1, 2, 3, 3, 3, 4][:2 if master_format else 5 if state_format else 6]
        common = pick(usual)
        param_dtypes = [pick(usual) if self.chance(0.1) else common for _ in counts]
        grad_dtypes = [pick([1, 2, 3, 4]) for _ in counts] if self.chance(0.5) else [pick([1, 2, 3, 4])] * len(counts)
        o = types.SimpleNamespace(number=len(self.optimizers), applied=0, skipped=0, unchanged=0, used=False,
                                  device_lr={}, saved=None)
        o.params = List(self, context, param_dtypes, counts, lambda d, n: self.numbers(d, n, 2.0))
        o.grads = List(self, context, grad_dtypes, counts, lambda d, n: np.zeros(n, STORED[d]))
        o.copy = [List(self, context, [pick([1, 2]) for _ in counts], counts, lambda d, n: np.zeros(n, STORED[d]))
                  for _ in range(pick([0, 1]))]
        options = lib.struct("gsc_optimizer_options")
        self.hyper(options, pick(self.lib.codes_of("optimizer_options_init", "gsc_optimizer_options")))
        options.state_format, options.master_format = state_format, master_format
        options.seed = pick([0, 1, -5, 2 ** 63 - 1])
        o.groups, o.group_of = [fields(options)], [0] * len(counts)
        names = oracle.state_names(o.groups[0]) + ["ema"] * (options.ema_decay > 0)
        shapes = [([FP64] * len(counts), [numbers] * len(counts)) if numbers else
                  ([oracle.state_dtype(o.groups[0], name, d) for d in param_dtypes], counts)
                  for name, numbers in ((name, oracle.numbers_of(o.groups[0], name)) for name in names)]
        if master_format in codes.REMAINDER:
            names.append("remainder")
            shapes.append(([codes.REMAINDER[master_format]] * len(counts), counts))
        o.state = []
        o.owns = self.chance(0.3) and state_format == 0 and master_format not in codes.REMAINDER
        if o.owns:
            o.state = [List(self, context, *shape, lambda d, n: np.abs(self.numbers(d, n, 2.0))) for shape in shapes]
        handles = (ctypes.c_void_p * 5)(*[s.handle for s in o.state])
        o.handle = ctypes.c_void_p()
        lib.must(lib.optimizer_create(context, byref(options), o.params.handle, o.grads.handle,
                                      o.copy[0].handle if o.copy else None, handles if o.state else None,
                                      len(o.state), byref(o.handle)))
        if not o.owns:
            o.state = [State(self, o, slot, *shapes[slot], name) for slot, name in enumerate(names)]
        o.names = names
        o.offsets = [sum(-(-n // 32) * 32 for n in counts[:i]) for i in range(len(counts))]
        o.t = [0] * len(counts)
        self.keep_weights(o)
        # An optimizer that narrows fp64 gradients makes the whole list overflow at fp32's limit.
        o.grads.fp32_limit = any(g == FP64 and p != FP64 for g, p in zip(grad_dtypes, param_dtypes, strict=True))
        self.optimizers.append(o)
        self.lists.append(o.grads)

    # -- What the pages expect

    @property
    def enabled(self):
        return bool(self.options.enabled)

    def do_check(self, grads, unscale):
        """Check or unscale of a whole list. The norm of the library is taken, once it is near enough."""
        inv = grads.multiply(self.policy.inv_scale)
        check = grads.check = oracle.Check(grads.tensors(), inv, grads.fp32_limit, unscale)
        grads.used = True
        if grads.norms_kept is not None:
            for got, exact in zip(grads.norms_kept.tolist(), check.tensor_norms, strict=True):
                assert is_near(got, exact), f"a tensor's norm is {got}, the oracle has {exact}"
        if not self.enabled or not (self.options.skip_norm or self.options.spike_factor):
            return
        if grads.judged_at != self.policy.updates:
            grads.norms, grads.judged_at = grads.next_norms, self.policy.updates
        grads.next_norms = copy.copy(grads.norms)
        if not check.overflow:
            self.near_norm(check, self.raw_report(grads)[0].grad_norm)
        check.norm_limit = grads.norms.limit(self.options)
        check.spike = not check.overflow and grads.next_norms.judge(self.options, check.grad_norm)
        check.norm_average, check.row = grads.next_norms.average(), grads.next_norms.r

    def take_norm(self, grads):
        """Compares the report of a list's last check with the oracle's, and takes over its norm: clip factors are
        compared to the bit for the norm that was reported."""
        report, check = self.report(grads), grads.check
        self.near_norm(check, report.grad_norm)
        names = ["grad_amax", "nonfinite_count", "inf_count", "nan_count", "first_tensor", "first_element"]
        for name in names + ["norm_limit", "norm_average"] * self.enabled:
            assert getattr(report, name) == getattr(check, name), \
                f"{name} {getattr(report, name)}, the oracle has {getattr(check, name)}"
        assert bool(report.flags & 1) == check.overflow
        assert bool(report.flags & 8) == check.spike

    @staticmethod
    def near_norm(check, want):
        exact = check.grad_norm
        assert is_near(want, exact), f"grad_norm {want}, the oracle has {exact}"
        check.grad_norm = want

    def raw_report(self, grads):
        report = self.lib.struct("gsc_report")
        return report, self.lib.scaler_get_report_sync(self.scaler, grads.handle, byref(report), None)

    def report(self, grads):
        (report, status), p, o = self.raw_report(grads), self.policy, self.options
        at_floor = o.floor_action != 0 and p.skips_at_floor >= o.floor_patience
        persist = bool(grads.check.spike and o.spike_action and 0 < o.spike_patience <= grads.check.row)
        wanted = SCALE_FLOOR if at_floor and o.floor_action == 2 else SPIKES if persist else OK
        assert status == wanted, (status, wanted)
        assert bool(report.flags & 2) == at_floor
        assert bool(report.flags & 16) == persist
        for name in ("scale", "growth_tracker", "hysteresis_tracker", "consecutive_skips", "updates", "skipped",
                     "spikes"):
            assert getattr(report, name) == getattr(p, name), f"{name} {getattr(report, name)}, not {getattr(p, name)}"
        return report

    def rate(self, o, group):
        scalar = o.device_lr.get(group)
        return float(scalar[0]) if scalar is not None else o.groups[group].lr

    def step_model(self, o, overflow, inv, clip, value):
        flags, o.used = o.groups[0].flags, True
        if overflow:
            o.skipped += 1
        else:
            o.applied += 1
        for i, present in enumerate(o.grads.present):
            if not present:
                continue
            g = o.grads.model[i]
            if not overflow:
                o.t[i] += 1
                self.apply_model(o, i, oracle.prepare(g, o.grads.dtypes[i], inv, clip, value))
                if flags & oracle.COUNT_UNCHANGED:
                    self.count_unchanged(o, i)
            if flags & oracle.ZERO_GRADS:
                g[:] = 0
            elif flags & oracle.WRITE_GRADS and not overflow:
                g[:] = oracle.narrow(oracle.prepare(g, o.grads.dtypes[i], inv, clip, value), o.grads.dtypes[i])

    def apply_model(self, o, i, g):
        group, dtype, n = o.groups[o.group_of[i]], o.params.dtypes[i], g.size
        splits, averages = o.names[-1:] == ["remainder"], "ema" in o.names
        slots = [s for s, name in zip(o.state, o.names, strict=True) if name not in ("ema", "remainder")]
        p = codes.join(dtype, o.params.model[i].view(np.uint16), o.state[-1].model[i]) if splits else \
            oracle.widen(o.params.model[i], dtype)
        state = [s.get(i).copy() for s in slots]
        rate = self.rate(o, o.group_of[i])
        if oracle.has_number(group) and n:
            wanted = oracle.novograd_number(group, o.t[i], g.astype(p.dtype), state[1][0])
            state[1] = self.near_number(slots[1].arrays[i], wanted)
        draws = codes.draw(o.offsets[i], n, o.applied, 0, group.seed)

        def put(after):
            for s, name, numbers in zip(slots, o.names[:len(slots)], after if n else state, strict=True):
                s.put(i, numbers, draws if np.float32(oracle.state_rate(group, name, o.t[i])) < 1 else None)

        def stored(*after):
            put(after)
            return [s.get(i) for s in slots]

        def weights(new):
            if splits:
                return codes.split(dtype, new, 8 * o.state[-1].model[i].itemsize)
            if group.master_format == codes.STOCHASTIC:
                return codes.round_weight(dtype, new, codes.draw(o.offsets[i], n, o.applied, 1, group.seed)), None
            return oracle.narrow(new, dtype), None

        def is_as_stored(new):
            w, rest = weights(new)
            return same(w.view(STORED[dtype]), o.params.arrays[i]) and \
                (rest is None or same(rest, o.state[-1].arrays[i]))

        new, after = oracle.apply(group, rate, o.t[i], p, g, state, stored=stored)
        if group.kind in (oracle.LAMB, oracle.LARS):
            # The last bits of sums depend on their order, which the pages leave to the code: a ratio that is a few bits
            # off will do.
            for bits in range(-RATIO_BITS, RATIO_BITS + 1):
                put(after)
                first_differs = slots and not same(slots[0].model[i], slots[0].arrays[i], slots[0].dtypes[i])
                if not is_as_stored(new) or first_differs:
                    new, after = oracle.apply(group, rate, o.t[i], p, g, state, off_by=bits, stored=stored)
        put(after)
        w, rest = weights(new)
        o.params.model[i][:] = w.view(STORED[dtype])
        if splits:
            o.state[-1].model[i][:] = rest
        if averages:
            average = o.state[o.names.index("ema")].model[i]
            kept = codes.join(dtype, w, rest) if splits else oracle.widen(o.params.model[i], dtype)
            average[:] = oracle.average(group, o.t[i], kept, average)
        for c in o.copy:
            c.model[i][:] = oracle.narrow(new, c.dtypes[i])

    @staticmethod
    def near_number(got, want):
        """A sum of squares of the library's, whose last bits are as those of a norm's."""
        near = got[0] == want or (math.isnan(got[0]) and math.isnan(want)) or abs(got[0] - want) <= 1e-12 * want
        assert near, f"a sum of squares is {got[0]}, the oracle has {want}"
        return got.copy()

    @staticmethod
    def weights_of(o):
        return [o.params, *o.state[-1:]] if o.names[-1:] == ["remainder"] else [o.params]

    def keep_weights(self, o):
        o.before = [[a.copy() for a in each.arrays] for each in self.weights_of(o)]

    def count_unchanged(self, o, i):
        alike = np.ones(o.params.counts[i], bool)
        for before, now in zip(o.before, self.weights_of(o), strict=True):
            bits = f"i{before[i].itemsize}"
            alike &= before[i].view(bits) == now.arrays[i].view(bits)
        o.unchanged += int(alike.sum())

    def must(self, name, *arguments):
        self.lib.must(getattr(self.lib, name)(*arguments))

    def expect(self, wanted, name, *arguments):
        """Calls a function, whose status must be `wanted`; whether that is OK."""
        status = getattr(self.lib, name)(*arguments)
        assert status == wanted, f"{name}: status {status}, the oracle has {wanted}: {self.lib.message().decode()}"
        return status == OK

    def compare(self):
        for o in self.optimizers:
            for what in ("params", "grads", "copy", "state"):
                some = getattr(o, what)
                for slot, each in enumerate(some if isinstance(some, list) else [some]):
                    for i, (a, m) in enumerate(zip(each.arrays, each.model, strict=True)):
                        if not same(a, m, each.dtypes[i] if what == "state" else None):
                            at = int((a.view(f"i{a.itemsize}") != m.view(f"i{m.itemsize}")).argmax())
                            raise AssertionError(
                                f"optimizer {o.number} {vars(o.groups[o.group_of[i]])}: {what} {slot}, tensor {i}, "
                                f"element {at}: {a[at]!r}, the oracle has {m[at]!r}")
            for s in o.state:
                if isinstance(s, State):
                    for i, (a, m) in enumerate(zip(s.scales, s.scale_model, strict=True)):
                        assert np.array_equal(a, m), (f"optimizer {o.number}: scales of tensor {i}", a, m)
            counts = (ctypes.c_int64 * 3)()
            self.must("optimizer_get_steps_sync", o.handle, counts, byref(counts, 8), None)
            self.must("optimizer_get_unchanged_sync", o.handle, byref(counts, 16), None)
            wanted = [o.applied, o.skipped, o.unchanged]
            assert list(counts) == wanted, ("applied, skipped, unchanged", list(counts), wanted)
            self.keep_weights(o)
            steps = (ctypes.c_int64 * len(o.t))()
            self.must("optimizer_get_tensor_steps_sync", o.handle, steps, len(o.t), None)
            assert list(steps) == o.t, ("tensor steps", list(steps), o.t)
