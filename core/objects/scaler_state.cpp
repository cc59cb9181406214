// SPDX-License-Identifier: Apache-2.0
// Reads a scaler's scale, reports, history and addresses, and sets its options and state.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/base/decimal.h"
#include "core/base/error.h"
#include "core/objects/scaler.h"
#include "core/objects/scaler_options.h"
#include "core/rules/report.h"

namespace gsc {

static_assert(sizeof(HistoryEntry) == sizeof(gsc_history_entry) &&
              offsetof(HistoryEntry, nonfinite_count) == offsetof(gsc_history_entry, nonfinite_count) &&
              offsetof(HistoryEntry, overflow) == offsetof(gsc_history_entry, overflow) &&
              offsetof(HistoryEntry, spike) == offsetof(gsc_history_entry, spike));

ScalerRecord Scaler::read_record(CallStream &call) const {
  order_.precede(call);
  ScalerRecord r;
  call.backend.read_sync(&r, record(), sizeof r, call.stream());
  return r;
}

void Scaler::require_checked(const TensorList *grads) const {
  if (grads == nullptr) return;
  require_usable(*grads);
  if (grads->checked_by != id_) {
    fail(GSC_ERROR_BAD_STATE, "grads", "has not been checked by this scaler");
  }
  if (is_of_other_context(*grads) && grads->other_context.home.get() != context_.get()) {
    fail(GSC_ERROR_BAD_STATE, "grads", "is of another device, and a scaler of a third has used it since its check");
  }
}

float Scaler::get_scale(gsc_stream stream) const {
  CallStream call(*context_, stream);
  order_.precede(call);
  PolicyState state;
  call.backend.read_sync(&state, &record()->state, sizeof state, call.stream());
  scale_use_.told();
  if (!call.backend.host_visible()) log_underflow(state, Cause::kUpdate);
  return state.scale;
}

void Scaler::log_report(const gsc_report &report) const {
  if (report.consecutive_skips < 1) return;
  if ((report.flags & GSC_REPORT_AT_FLOOR) != 0) {
    context_->log(
        GSC_LOG_WARNING,
        "loss scale %s cannot be lowered any further: %d updates in a row were skipped; the inf or NaN does not "
        "come from the scale",
        Decimal(report.scale).c_str(), report.consecutive_skips);
  }
  if ((report.flags & GSC_REPORT_SPIKES_PERSIST) != 0) {
    context_->log(GSC_LOG_WARNING,
                  "the gradient norm %s is above its limit, which is %s: %d updates in a row were skipped",
                  Decimal(report.grad_norm).c_str(), Decimal(report.norm_limit).c_str(), report.consecutive_skips);
  }
}

void Scaler::log_underflow(const PolicyState &state, Cause cause, const Offender &offender) const {
  const bool is_lost = has_underflowed(state);
  if (told_underflow_.exchange(is_lost, std::memory_order_relaxed) || !is_lost) return;
  const char *const start = "is too small to divide by, and every step is skipped until gsc_scaler_set_scale";
  if (cause == Cause::kCaller) {
    context_->log(GSC_LOG_WARNING, "loss scale %s %s", Decimal(state.scale).c_str(), start);
    return;
  }
  context_->log(
      GSC_LOG_WARNING,
      "loss scale %s %s; inf or NaN%s did not go away with a lower scale, to which options.min_scale is a limit",
      Decimal(state.scale).c_str(), start, offender.text);
}

Scaler::Offender Scaler::first_offender() const {
  Offender offender;
  for (const Ref<TensorList> &list : lists_) {
    const int64_t tensor = list->record()->first_tensor;
    if (list->iteration.stage() == Stage::kReady || tensor < 0) continue;
    std::snprintf(offender.text, sizeof offender.text, " in tensor %lld%s", static_cast<long long>(tensor),
                  NameSuffix(&list->names(), tensor).c_str());
    break;
  }
  return offender;
}

gsc_status Scaler::get_report_sync(const TensorList *grads, gsc_report &out, gsc_stream stream) {
  require_checked(grads);
  CallStream call(*context_, stream);
  const ScalerRecord scaler = read_record(call);
  ListRecord list;
  if (grads != nullptr) call.backend.read_sync(&list, record_here(*grads, call), sizeof list, call.stream());
  pack_report(scaler, grads != nullptr ? &list : nullptr, out);
  const bool is_at_floor = options_.floor_action == GSC_FLOOR_ERROR && (out.flags & GSC_REPORT_AT_FLOOR) != 0;
  const bool has_spikes = (out.flags & GSC_REPORT_SPIKES_PERSIST) != 0;
  if (!context_->backend().host_visible()) {  // last: the callbacks may use and destroy objects
    log_underflow(scaler.state, Cause::kUpdate);
    log_report(out);
  }
  if (is_at_floor) return GSC_ERROR_SCALE_FLOOR;
  return has_spikes ? GSC_ERROR_SPIKES : GSC_OK;
}

void Scaler::read_report_async(const TensorList *grads, gsc_report *out, uint32_t out_size, gsc_stream stream) {
  require_checked(grads);
  CallStream call(*context_, stream);
  order_.use(call);
  if (grads != nullptr) order_of_record(*grads).use(call);
  const ListRecord *list = grads != nullptr ? record_here(*grads, call) : nullptr;
  call.backend.record(
      {.kind = RecordJob::Kind::kReport, .seen = list, .scaler = record(), .out = out, .out_size = out_size},
      call.stream());
  call.mark();
}

int64_t Scaler::history_sync(gsc_history_entry *out, int64_t capacity, gsc_stream stream) {
  if (capacity < 0) {
    refuse_value("capacity", capacity, ">= 0");
  }
  if (capacity > 0 && out == nullptr) {
    refuse("out_entries", "is NULL but capacity is %lld", static_cast<long long>(capacity));
  }
  CallStream call(*context_, stream);
  const ScalerRecord r = read_record(call);
  const int64_t held = std::min(r.state.updates - r.history_begin, r.history_capacity);
  const int64_t count = std::min(held, capacity);
  Backend &backend = context_->backend();
  const auto read = [&](gsc_history_entry *to) {
    for (int64_t done = 0; done < count;) {  // up to the end of the ring, then from its beginning
      const int64_t at = (r.state.updates - count + done) % r.history_capacity;
      const int64_t part = std::min(count - done, r.history_capacity - at);
      backend.read_sync(to + done, r.history + at, part * int64_t{sizeof(HistoryEntry)}, call.stream());
      done += part;
    }
  };
  if (backend.host_visible()) {
    read(out);
  } else {  // may fail half-way
    Vec<gsc_history_entry> entries(count, context_->memory());
    read(entries.data());
    std::copy(entries.begin(), entries.end(), out);
    log_underflow(r.state, Cause::kUpdate);
  }
  return capacity == 0 ? held : count;
}

gsc_device_state Scaler::device_state(const TensorList *grads) const {
  if (grads != nullptr) {
    require_usable(*grads);
    if (is_of_other_context(*grads) && grads->other_context.scaler != id_) {
      fail(GSC_ERROR_BAD_STATE, "grads", "is of another device and was not used with this scaler last");
    }
  }
  scale_use_.gave_address();
  const PolicyState *state = grads != nullptr ? &record_on(*grads)->state : &record()->state;
  gsc_device_state out{};
  out.struct_size = sizeof out;
  out.scale = &state->scale;
  out.inv_scale = &state->inv_scale;
  out.growth_tracker = &state->growth_tracker;
  out.hysteresis_tracker = &state->hysteresis_left;
  if (grads != nullptr) {
    const ListRecord *list = grads->record();
    out.found_inf = &list->found_inf;
    out.grad_norm = &list->grad_norm;
    out.norm_limit = &list->norm_limit;
    out.spike = &list->spike;
  }
  return out;
}

gsc_scaler_state Scaler::get_state(gsc_stream stream) const {
  if (!enabled()) fail(GSC_ERROR_BAD_STATE, "scaler", "is disabled and has no state");
  CallStream call(*context_, stream);
  const ScalerRecord r = read_record(call);
  gsc_scaler_state s{};
  s.struct_size = sizeof s;
  s.format = GSC_SCALER_STATE_FORMAT;
  s.growth_factor = options_.growth_factor;
  s.backoff_factor = options_.backoff_factor;
  s.scale = r.state.scale;
  s.growth_interval = options_.growth_interval;
  s.growth_tracker = r.state.growth_tracker;
  s.hysteresis_tracker = r.state.hysteresis_left;
  s.overflows_since_rescale = r.state.overflows_since_rescale;
  s.updates_since_rescale = r.state.updates_since_rescale;
  s.consecutive_skips = r.state.consecutive_skips;
  s.skips_at_floor = r.state.skips_at_floor;
  s.updates = r.state.updates;
  s.skipped = r.state.skipped;
  s.spikes = r.state.spikes;
  if (!context_->backend().host_visible()) log_underflow(r.state, Cause::kUpdate);
  return s;
}

void Scaler::set_state(const gsc_scaler_state &state, gsc_stream stream) {
  constexpr Argument kState{"state"};
  if (state.format != GSC_SCALER_STATE_FORMAT) {
    refuse(kState.field("format"), "is 0x%x; this is not the state of a gradscaler scaler", state.format);
  }
  // A scale of 0 or inf can be reached without a floor or guard, so it can be restored.
  if (std::isnan(state.scale) || state.scale < 0.0F) {
    refuse_value(kState.field("scale"), state.scale, ">= 0");
  }
  gsc_scaler_options options = options_;
  options.growth_factor = state.growth_factor;
  options.backoff_factor = state.backoff_factor;
  options.growth_interval = state.growth_interval;
  validate_factors(options, kState);
  const struct {
    Literal name;
    int64_t value;
  } counters[] = {{"growth_tracker", state.growth_tracker},
                  {"hysteresis_tracker", state.hysteresis_tracker},
                  {"overflows_since_rescale", state.overflows_since_rescale},
                  {"updates_since_rescale", state.updates_since_rescale},
                  {"consecutive_skips", state.consecutive_skips},
                  {"skips_at_floor", state.skips_at_floor},
                  {"updates", state.updates},
                  {"skipped", state.skipped},
                  {"spikes", state.spikes}};
  for (const auto &counter : counters) {
    if (counter.value < 0) {
      refuse_value(kState.field(counter.name), counter.value, ">= 0");
    }
  }
  if (state.skipped > state.updates) {
    refuse(kState.field("skipped"), "is %lld, more than state.updates, which is %lld",
           static_cast<long long>(state.skipped), static_cast<long long>(state.updates));
  }
  if (state.spikes > state.skipped) {
    refuse(kState.field("spikes"), "is %lld, more than state.skipped, which is %lld",
           static_cast<long long>(state.spikes), static_cast<long long>(state.skipped));
  }
  if (state.hysteresis_tracker > options_.hysteresis) {
    refuse(kState.field("hysteresis_tracker"),
           "is %d, but options.hysteresis of this scaler is %d; first set the options that the state was saved under",
           state.hysteresis_tracker, options_.hysteresis);
  }
  if (!enabled()) return;
  CallStream call(*context_, stream);
  wait_for_lists(call);
  ScalerRecord r = new_record(options);
  store_scale(r.state, state.scale);
  r.state.growth_tracker = state.growth_tracker;
  r.state.hysteresis_left = state.hysteresis_tracker;
  r.state.overflows_since_rescale = state.overflows_since_rescale;
  r.state.updates_since_rescale = state.updates_since_rescale;
  r.state.consecutive_skips = state.consecutive_skips;
  r.state.updates = state.updates;
  r.state.skipped = state.skipped;
  r.state.spikes = state.spikes;
  r.state.skips_at_floor = state.skips_at_floor;
  r.history_begin = state.updates;
  context_->backend().write(record(), &r, sizeof r, call.stream());
  options_ = options;
  scale_use_.told();
  reset_lists();
  call.mark();
  log_underflow(r.state, Cause::kCaller);
}

void Scaler::set_options(const gsc_scaler_options &options, gsc_stream stream) {
  validate(options);
  if (options.init_scale != options_.init_scale) {
    refuse(kOptions.field("init_scale"), "is %s, but the scaler was created with %s",
           Decimal(options.init_scale).c_str(), Decimal(options_.init_scale).c_str());
  }
  if (options.enabled != options_.enabled) {
    refuse(kOptions.field("enabled"), "is %d, but the scaler was created with %d", options.enabled, options_.enabled);
  }
  if (options.history_capacity != options_.history_capacity) {
    refuse(kOptions.field("history_capacity"), "is %d, but the scaler was created with %d", options.history_capacity,
           options_.history_capacity);
  }
  require_no_slices();
  CallStream call(*context_, stream);
  wait_for_lists(call);
  context_->backend().record({.kind = RecordJob::Kind::kSetPolicy, .scaler = record(), .policy = make_policy(options)},
                             call.stream());
  options_ = options;
  ++options_set_;
  call.mark();
}

}  // namespace gsc
