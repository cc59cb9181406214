#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random programs through the C library, compared with oracle.py after every call.

Usage: random_programs.py [LIBRARY] [--seconds N] [--programs N] [--seed S]. Each seed is one program: a scaler, up to
three optimizers of any kind, and 60 random calls. Statuses, buffers, state, counters and reports are compared, to the
last bit where the pages promise bits. A program that fails prints its calls and its seed.
"""
import argparse
import copy
import ctypes
import math
import pathlib
import sys
import time
from ctypes import byref

import numpy as np
import oracle
from oracle import FP16, FP32, FP64, STORED
from world import BAD_STATE, CHECKED, INVALID, OK, READY, STEPPED, UNSCALED, World, fields, same

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/support"))
from c_library import CLibrary  # noqa: E402

#: Calls that take a list into the scaler's iteration.
ENTERS = ("check", "check_range", "unscale", "clip_grad_norm", "clip_grad_value", "step", "step_and_update",
          "should_step")


class Program(World):
    # Whether the program has scaled since the last update and in the iteration before, and whether it has the scale.
    scales, scaled_before, has_scale = False, False, True

    def has_old_gradients(self):
        return self.enabled and self.scaled_before and not self.has_scale

    def call(self):
        choices = dict(backward=10, scale=2, check=3, check_range=3, unscale=4, clip_grad_norm=3, clip_grad_value=3,
                       step=12, step_and_update=4, should_step=2, update=14, discard=1, set_scale=1, set_options=1,
                       move_state=1, hyper=2, add_group=1, device_lr=1, device_factor=3, device_norms=2, present=3,
                       zero_grads=1, own_step=2, step_scaled=2, checkpoint=1, steps=1, offsets=1, report=3, diagnose=1,
                       history=2, rival_check=1)
        name = self.random.choice(list(choices), p=np.array(list(choices.values())) / sum(choices.values()))
        o = self.pick(self.optimizers)
        self.log.append(f"{name} {o.number}")
        if name in ENTERS and self.has_old_gradients():
            # Refused until the program has the scale.
            self.expect(BAD_STATE, "scaler_check", self.scaler, o.grads.handle, None)
            scale = ctypes.c_float()
            self.must("scaler_get_scale_sync", self.scaler, byref(scale), None)
            assert np.float32(scale.value) == self.policy.scale
            self.has_scale = True
        getattr(self, "call_" + str(name))(o)
        self.compare()

    def note(self, *what):
        self.log[-1] += " " + " ".join(map(str, what))

    def call_backward(self, o):
        if not o.grads.in_part():
            self.gradients(o.grads)

    def call_scale(self, _):
        source, target = self.pick([1, 2, 3, 4]), self.pick([1, 2, 3, 4])
        x = self.numbers(source, self.pick([1, 5, 100]))
        y = np.zeros(x.size, STORED[target])
        tensors = [self.lib.gsc_tensor(data=a.ctypes.data, count=a.size, dtype=d)
                   for a, d in ((x, source), (y, target))]
        self.must("scaler_scale", self.scaler, *map(byref, tensors), 1, None)
        self.scales = self.has_scale = True
        kind = np.float64 if FP64 in (source, target) else np.float32
        want = oracle.narrow(oracle.widen(x, source).astype(kind) * kind(self.policy.scale), target)
        assert same(y, want if self.enabled or source != target else x), (source, target, x, y, want)

    def call_check(self, o):
        grads = o.grads
        good = self.expect(OK if grads.stage == READY or not self.enabled else BAD_STATE, "scaler_check", self.scaler,
                           grads.handle, None)
        if good and self.enabled:
            self.do_check(grads, False)
            grads.stage = CHECKED
            self.take_norm(grads)

    def call_rival_check(self, o):
        rival = ctypes.c_void_p()
        self.must("scaler_create", self.context, None, byref(rival))
        good = self.expect(BAD_STATE if o.grads.used else OK, "scaler_check", rival, o.grads.handle, None)
        self.lib.library.gsc_scaler_destroy(rival)
        if good:
            o.grads.check = None  # the report is the other's

    def call_check_range(self, o):
        grads, n = o.grads, len(o.grads.counts)
        first, count = self.pick(range(n + 1)), self.pick(range(n + 1))
        self.note(first, count)
        free = not self.enabled or grads.stage == READY and not any(grads.covered[first:first + count])
        wanted = INVALID if first + count > n else OK if free else BAD_STATE
        good = self.expect(wanted, "scaler_check_range", self.scaler, grads.handle, first, count, None)
        if not (good and self.enabled):
            return
        grads.used = True
        grads.covered[first:first + count] = [True] * count
        if count:
            grads.multiply(self.policy.inv_scale)
        if all(grads.covered):
            self.do_check(grads, False)
            grads.stage = CHECKED
            self.take_norm(grads)

    def call_unscale(self, o):
        grads = o.grads
        if not self.expect(OK if not self.enabled or grads.stage in (READY, CHECKED) else BAD_STATE,
                           "scaler_unscale", self.scaler, grads.handle, None):
            return
        grads.used = True
        if not self.enabled:
            grads.rewrite(np.float32(1), math.inf, grads.times_factor(np.float32(1)))
            grads.unscaled = True
            return
        grads.multiplier = None  # this check is a new one
        self.do_check(grads, True)
        grads.unscaled = True
        for m, w in zip(grads.model, grads.check.written, strict=True):
            if w is not None:
                m[:] = w
        grads.stage = UNSCALED
        self.take_norm(grads)

    def call_clip_grad_norm(self, o):
        grads, by_amax = o.grads, self.chance(0.3)
        max_norm = self.pick([0.0, 0.1, 1.0, 10.0, 1e30])
        self.note(max_norm, by_amax)
        free = grads.stage != STEPPED and grads.max_norm is None and grads.value == math.inf
        if self.expect(OK if free else BAD_STATE,
                       "scaler_clip_grad_norm", self.scaler, grads.handle, max_norm, 3 if by_amax else 2, None):
            grads.max_norm, grads.by_amax, grads.used = max_norm, by_amax, True
            if grads.unscaled:
                self.apply_clip(grads)

    def call_clip_grad_value(self, o):
        grads, value = o.grads, self.pick([0.0, 0.01, 0.5, 100.0, math.inf])
        self.note(value)
        if self.expect(OK if grads.stage != STEPPED else BAD_STATE,
                       "scaler_clip_grad_value", self.scaler, grads.handle, value, None):
            grads.value, grads.used = min(grads.value, value), True
            if grads.unscaled and grads.value != math.inf:
                self.apply_clip(grads)
                grads.value_applied = True

    def apply_clip(self, grads):
        """On an unscaled list the gradients are rewritten at once."""
        pending = grads.max_norm is not None and not grads.norm_applied
        if pending and not self.enabled:
            self.do_check(grads, False)
            self.take_norm(grads)
        if pending:
            grads.rewrite(grads.clip(), math.inf)
            grads.norm_applied = True
        grads.rewrite(np.float32(1), grads.value)

    def stepped(self, o, updates=False):
        grads = o.grads
        if grads.stage == READY and (self.enabled or grads.max_norm is not None and not grads.norm_applied):
            self.do_check(grads, False)
        inv = grads.multiply(self.policy.inv_scale)
        checked = grads.check is not None and (self.enabled or grads.max_norm is not None)
        skips = self.enabled and grads.check.skips
        grads.used, grads.stage, grads.left_scaled = True, STEPPED, not grads.unscaled
        if updates and self.enabled:
            self.update_policy()
        if checked:
            self.take_norm(grads)
        self.step_model(o, skips, inv, grads.clip(), math.inf if grads.value_applied else grads.value)
        if not self.enabled:
            grads.ready()

    def call_step(self, o):
        if self.expect(OK if o.grads.stage != STEPPED else BAD_STATE, "scaler_step", self.scaler, o.handle, None):
            self.stepped(o)

    def update_policy(self):
        self.scaled_before, self.scales, self.has_scale = self.scales, False, False
        lists = [grads for grads in self.lists if grads.stage != READY]
        overflow, spikes = (any(getattr(grads.check, name) for grads in lists) for name in ("overflow", "spike"))
        self.policy.update(overflow, spikes)
        self.history.append((self.policy.updates - 1, [grads.check for grads in lists], self.policy.scale, overflow,
                             spikes and not overflow))

    def ready(self):
        for grads in self.lists:
            grads.ready()

    def call_step_and_update(self, o):
        in_part = any(g.in_part() for g in self.lists if g is not o.grads)
        refused = o.grads.stage == STEPPED or (in_part and self.enabled)
        if self.expect(INVALID if o.grads.is_away else BAD_STATE if refused else OK,
                       "scaler_step_and_update", self.scaler, o.handle, None):
            self.stepped(o, updates=True)
            self.ready()

    def call_update(self, _):
        in_part = any(g.in_part() for g in self.lists)
        some = any(g.stage != READY for g in self.lists)
        if self.expect(OK if not self.enabled or (some and not in_part) else BAD_STATE,
                       "scaler_update", self.scaler, None):
            if self.enabled:
                self.update_policy()
            self.ready()

    def call_should_step(self, o):
        grads, apply = o.grads, ctypes.c_int32()
        pending = grads.value != math.inf and not grads.value_applied
        unmultiplied = grads.factor is not None and not grads.unscaled
        if not self.expect(BAD_STATE if self.enabled and grads.stage == STEPPED or
                           pending and (self.enabled or unmultiplied) else OK,
                           "scaler_should_step_sync", self.scaler, grads.handle, byref(apply), None):
            return
        if self.enabled and grads.stage == READY:
            self.do_check(grads, False)
        if self.enabled:
            self.take_norm(grads)
        elif grads.max_norm is not None and not grads.norm_applied:
            self.do_check(grads, False)
            self.take_norm(grads)
        assert apply.value == (0 if self.enabled and grads.check.skips else 1)
        grads.rewrite(grads.clip(), math.inf)
        grads.norm_applied = grads.max_norm is not None
        grads.used, grads.stage = True, STEPPED
        if not self.enabled:
            if pending:
                grads.rewrite(np.float32(1), grads.value)
            grads.ready()

    def call_discard(self, o):
        everything = self.chance(0.3)
        self.must("scaler_discard", self.scaler, None if everything else o.grads.handle)
        for grads in self.lists if everything else [o.grads]:
            grads.ready()

    def call_set_scale(self, _):
        scale = np.float32(self.pick([1.0, 1024.0, 3.0, 0.1, 2.0 ** 20]))
        self.must("scaler_set_scale", self.scaler, scale, None)
        if self.enabled:
            self.policy.scale, self.policy.skips_at_floor, self.has_scale = scale, 0, True
            for grads in self.lists:
                grads.ready()

    def call_set_options(self, _):
        options = self.lib.struct("gsc_scaler_options")
        self.scaler_options(options)
        for name in ("init_scale", "enabled", "history_capacity"):
            setattr(options, name, getattr(self.options, name))
        options.min_scale = min(options.min_scale, options.init_scale)
        options.max_scale = 0.0 if options.max_scale < options.init_scale else options.max_scale
        if self.lib.scaler_set_options(self.scaler, byref(options), None) == OK:
            self.options = self.policy.o = fields(options)
            self.policy.hysteresis_tracker = min(self.policy.hysteresis_tracker, options.hysteresis)
            self.note(vars(self.options))

    STATE = ("scale", "growth_tracker", "hysteresis_tracker", "overflows_since_rescale", "updates_since_rescale",
             "consecutive_skips", "skips_at_floor", "updates", "skipped", "spikes")

    def call_move_state(self, _):
        """Saves the state, and restores it, or an earlier one."""
        state = self.lib.struct("gsc_scaler_state")
        if not self.expect(OK if self.enabled else BAD_STATE, "scaler_get_state_sync", self.scaler, byref(state),
                           None):
            return
        for name in self.STATE:
            assert getattr(state, name) == getattr(self.policy, name), \
                (name, getattr(state, name), getattr(self.policy, name))
        for name in ("growth_factor", "backoff_factor", "growth_interval"):
            assert getattr(state, name) == getattr(self.options, name), name
        if self.chance(0.5):
            return
        if self.chance(0.5) and getattr(self, "saved_state", None) is not None:
            state = self.saved_state
        self.saved_state = state
        if not self.expect(INVALID if state.hysteresis_tracker > self.options.hysteresis else OK, "scaler_set_state",
                           self.scaler, byref(state), None):
            return
        for name in self.STATE:
            setattr(self.policy, name, getattr(state, name))
        self.policy.scale = np.float32(state.scale)
        self.has_scale = True
        for name in ("growth_factor", "backoff_factor", "growth_interval"):
            setattr(self.options, name, getattr(state, name))
        self.history = []
        for grads in self.lists:
            grads.ready()

    @staticmethod
    def same_formats(options, o):
        for name in ("state_format", "master_format", "seed"):
            setattr(options, name, getattr(o.groups[0], name))

    def call_offsets(self, o):
        o.offsets = [int(32 * at) for at in self.random.integers(0, 2 ** 48, len(o.t))]
        self.must("optimizer_set_offsets", o.handle, (ctypes.c_int64 * len(o.t))(*o.offsets), len(o.t), None)

    def call_hyper(self, o):
        group = self.pick(range(len(o.groups)))
        if self.chance(0.5):
            lr = self.pick([0.0, 1e-3, 0.25])
            self.must("optimizer_set_lr", o.handle, group, lr, None)
            o.groups[group].lr = lr
            o.device_lr.pop(group, None)
            return
        options = self.lib.struct("gsc_optimizer_options")
        old = o.groups[group]
        averages = o.groups[0].ema_decay > 0
        self.hyper(options, old.kind, old.flags, [0.9, 0.5] if old.momentum else [0.0],
                   [0.5, 0.99] if averages and group == 0 else [0.0, 0.9] if averages else [0.0])
        self.same_formats(options, o)
        self.must("optimizer_set_options", o.handle, group, byref(options), None)
        o.groups[group] = fields(options)
        o.groups[group].initial_accumulator_value = old.initial_accumulator_value
        self.note(group, vars(o.groups[group]))

    def call_add_group(self, o):
        n = len(o.t)
        first = self.pick(range(n))
        count = self.pick(range(n - first + 1))
        options = self.lib.struct("gsc_optimizer_options")
        all_groups = o.groups[0]
        momenta = [0.0] if not all_groups.momentum else [0.9, 0.5, 0.5 if all_groups.flags & oracle.NESTEROV else 0.0]
        self.hyper(options, all_groups.kind, all_groups.flags, momenta, [0.0, 0.9] if all_groups.ema_decay else [0.0])
        if o.owns or o.used:
            options.initial_accumulator_value = o.groups[0].initial_accumulator_value
        self.same_formats(options, o)
        number = ctypes.c_int32()
        taken = any(o.group_of[first:first + count])
        if not self.expect(INVALID if taken else OK, "optimizer_add_group", o.handle, first, count,
                           byref(options), byref(number)):
            return
        o.groups.append(fields(options))
        assert number.value == len(o.groups) - 1
        o.group_of[first:first + count] = [number.value] * count
        if o.groups[0].kind == oracle.ADAGRAD and not o.owns and not o.used:
            for i in range(first, first + count):
                number = o.state[0].get(i).dtype.type(options.initial_accumulator_value)
                o.state[0].put(i, np.full(o.params.counts[i], number))
        self.note(first, count, vars(o.groups[-1]))

    def call_device_lr(self, o):
        group = self.pick(range(len(o.groups)))
        if self.chance(0.3):
            o.device_lr.pop(group, None)
            return self.must("optimizer_set_device_lr", o.handle, group, None, None)
        scalar = np.array([self.pick([0.0, 0.1, 1e-3])], np.float32)
        self.must("optimizer_set_device_lr", o.handle, group, scalar.ctypes.data, None)
        o.device_lr[group] = scalar

    def call_present(self, o):
        grads = o.grads
        present = np.array([self.chance(0.7) for _ in grads.counts], np.uint8)
        everything = self.chance(0.3)
        if self.expect(BAD_STATE if grads.used else OK, "tensor_list_set_present", grads.handle,
                       None if everything else present.ctypes.data, None, present.size, None):
            grads.present = [bool(everything or p or n == 0) for p, n in zip(present, grads.counts, strict=True)]
            self.note(grads.present)

    def call_device_factor(self, o):
        grads = o.grads
        factor = self.pick([None, np.array([self.pick([0.0, 0.5, 1 / 3, 1.0, 1e-3, 5.0])], np.float32)])
        if not self.expect(BAD_STATE if grads.used else OK, "tensor_list_set_device_factor", grads.handle,
                           factor.ctypes.data if factor is not None else None):
            return
        grads.factor = factor
        if factor is None:
            return
        self.note(factor[0])
        good = factor[0]
        factor[0] = self.pick([-1.0, math.inf, math.nan])
        self.expect(INVALID, "optimizer_step", o.handle, None)
        factor[0] = good

    def call_device_norms(self, o):
        grads = o.grads
        norms = self.pick([None, np.full(len(grads.counts), -1.0)])
        if self.expect(BAD_STATE if grads.used else OK, "tensor_list_set_device_norms", grads.handle,
                       norms.ctypes.data if norms is not None else None, len(grads.counts)):
            grads.norms_kept = norms

    def call_zero_grads(self, o):
        if o.grads.in_part():
            return
        self.must("optimizer_zero_grads", o.handle, None)
        for m, here in zip(o.grads.model, o.grads.present, strict=True):
            if here:
                m[:] = 0

    def call_own_step(self, o):
        """gsc_optimizer_step, where the pages say whether it may be called."""
        grads = o.grads
        norm_waits = grads.max_norm is not None and not grads.norm_applied
        pending = norm_waits or grads.value != math.inf and not grads.value_applied
        if grads.stage == STEPPED or grads.in_part() or pending and grads.stage != READY:
            return
        if self.expect(BAD_STATE if grads.stage == CHECKED or pending else OK, "optimizer_step", o.handle, None):
            self.step_model(o, False, grads.times_factor(np.float32(1)), np.float32(1), math.inf)

    def call_step_scaled(self, o):
        grads = o.grads
        if grads.used:
            return
        inv = np.array([self.pick([1.0, 0.5, 2.0 ** -10, 1 / 3, 0.0, -1.0, math.inf, math.nan])], np.float32)
        found = np.array([self.pick([0.0, 0.0, 0.0, 1.0, 0.25, -1.0, math.inf, math.nan])], np.float32)
        pass_inv, pass_found = self.chance(0.8), self.chance(0.8)
        skip = pass_found and found[0] != 0
        bad = pass_inv and not skip and not (inv[0] >= 0 and np.isfinite(inv[0]))
        if self.expect(INVALID if bad else OK, "optimizer_step_scaled", o.handle, inv.ctypes.data if pass_inv else None,
                       found.ctypes.data if pass_found else None, None):
            self.step_model(o, skip, grads.times_factor(inv[0] if pass_inv else np.float32(1)), np.float32(1), math.inf)

    def call_checkpoint(self, o):
        if o.saved is not None and self.chance(0.5):
            buffer, state, t, applied, skipped, norms = o.saved
            o.grads.next_norms, o.grads.judged_at = norms, -1
            self.must("optimizer_load_sync", o.handle, buffer, len(buffer), None)
            for s, (arrays, scales) in zip(o.state, state, strict=True):
                for m, a in zip([*s.model, *getattr(s, "scale_model", [])], [*arrays, *scales], strict=True):
                    m[:] = a
            o.t, o.applied, o.skipped, o.unchanged, o.used = list(t), applied, skipped, 0, True
            return
        size = ctypes.c_int64()
        self.must("optimizer_get_save_size", o.handle, byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.must("optimizer_save_sync", o.handle, buffer, size.value, None)
        state = copy.deepcopy([(s.model, getattr(s, "scale_model", [])) for s in o.state])
        o.saved = buffer, state, list(o.t), o.applied, o.skipped, o.grads.next_norms

    def call_steps(self, o):
        o.used = True
        if self.chance(0.5):
            o.applied, o.skipped = self.pick([0, 1, 7, 1000]), self.pick([0, 5])
            self.must("optimizer_set_steps", o.handle, o.applied, o.skipped, None)
            o.unchanged = 0
            o.t = [o.applied] * len(o.t)
        else:
            o.t = [self.pick([0, 1, 3, 50]) for _ in o.t]
            steps = (ctypes.c_int64 * len(o.t))(*o.t)
            self.must("optimizer_set_tensor_steps", o.handle, steps, len(o.t), None)
            o.applied = max(o.t)

    def call_report(self, o):
        if o.grads.check is not None and self.enabled and not o.grads.in_part():
            self.take_norm(o.grads)

    def call_history(self, _):
        entries, count = (self.lib.gsc_history_entry * 64)(), ctypes.c_int64()
        self.must("scaler_get_history_sync", self.scaler, entries, 64, byref(count), None)
        kept = self.history[len(self.history) - min(len(self.history), self.options.history_capacity):]
        assert count.value == len(kept), (count.value, len(kept))
        for entry, (number, checks, scale, overflow, spike) in zip(entries, kept, strict=False):
            norm = math.sqrt(sum(check.grad_norm ** 2 for check in checks))
            nonfinite = sum(check.nonfinite_count for check in checks)
            limit = min(check.norm_limit for check in checks if check.spike or not any(c.spike for c in checks))
            wanted = number, nonfinite, scale, overflow, spike, limit
            assert (entry.update, entry.nonfinite_count, np.float32(entry.scale), bool(entry.overflow),
                    bool(entry.spike), entry.norm_limit) == wanted, (fields(entry), wanted)
            assert entry.grad_norm == norm or math.isnan(norm) and math.isnan(entry.grad_norm) or \
                abs(entry.grad_norm - norm) <= 1e-12 * norm, (entry.grad_norm, norm)

    def call_diagnose(self, o):
        grads = o.grads
        out = (self.lib.gsc_tensor_diagnosis * len(grads.counts))()
        histogram = np.zeros((len(grads.counts), 288), np.int64)
        self.must("tensor_list_diagnose_sync", grads.handle, out, histogram.ctypes.data, len(out), None)
        for i, (stored, dtype) in enumerate(grads.tensors()):
            x = oracle.widen(stored if stored is not None else np.zeros(0, STORED[dtype]), dtype).astype(np.float64)
            bad, finite = ~np.isfinite(x), np.abs(x[np.isfinite(x) & (x != 0)])
            tiny = 2.0 ** {FP16: -14, oracle.BF16: -126, FP32: -126, FP64: -1022}[dtype]
            want = (x.size, int(np.isinf(x).sum()), int(np.isnan(x).sum()), int((x == 0).sum()),
                    int((finite < tiny).sum()), int(bad.argmax()) if bad.any() else -1,
                    finite.max(initial=0.0), finite.min(initial=math.inf) if finite.size else 0.0)
            got = tuple(getattr(out[i], name) for name, _ in out[i]._fields_)
            assert got[:-1] == want, (i, got, want)
            norm = math.sqrt(oracle.sum_of_squares(finite))
            assert abs(got[-1] - norm) <= 1e-12 * norm or got[-1] == norm, (got[-1], norm)
            bins = np.bincount(np.clip(np.frexp(finite)[1] - 1 + 160, 0, 287), minlength=288)
            assert (bins == histogram[i]).all(), i


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", nargs="?", default=ROOT / "build" / "release" / "lib" / "libgradscaler.so")
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--programs", type=int, default=0)
    arguments = parser.parse_args()
    lib = CLibrary(arguments.library)
    oracle.require_equations(lib.codes_of("optimizer_options_init", "gsc_optimizer_options"))
    np.seterr(all="ignore")
    end, seed, calls = time.monotonic() + arguments.seconds, arguments.seed, 0
    while seed < arguments.seed + arguments.programs or time.monotonic() < end:
        world = Program(lib, seed)
        for _ in range(60):
            try:
                world.call()
            except AssertionError:
                print("\n".join(world.log), f"\nseed {seed} fails:", sep="", file=sys.stderr)
                raise
            calls += 1
        world.close()
        seed += 1
    print(f"oracle: {seed - arguments.seed} programs, {calls} calls")


if __name__ == "__main__":
    main()
