// SPDX-License-Identifier: Apache-2.0
// Work on records only, as one job with a kind. Compiled for host and device.
#pragma once

#include "core/rules/report.h"

namespace gsc {

/// The functions that make a job set the fields that its kind uses.
struct RecordJob {
  enum class Kind : int32_t { kConclude, kUpdate, kSetPolicy, kSetScale, kReport, kUpdateScale };

  Kind kind;
  ListRecord *list;
  const ListRecord *seen;
  ClipRule rule;
  ScalerRecord *scaler;
  const ListRecord *const *lists;  ///< host memory
  int64_t list_count;
  Policy policy;
  float scale;
  gsc_report *out;
  float *scale_word;
  int32_t *tracker_word;
  const float *found_inf;

  /// Concludes a check whose totals are in the record.
  static RecordJob conclude(ListRecord *list, const ClipRule &rule) {
    RecordJob job = of(Kind::kConclude);
    job.list = list;
    job.rule = rule;
    return job;
  }
  /// The scaler's update after an iteration over these lists.
  static RecordJob update(ScalerRecord *scaler, const ListRecord *const *lists, int64_t count) {
    RecordJob job = of(Kind::kUpdate);
    job.scaler = scaler;
    job.lists = lists;
    job.list_count = count;
    return job;
  }
  static RecordJob set_policy(ScalerRecord *scaler, const Policy &policy) {
    RecordJob job = of(Kind::kSetPolicy);
    job.scaler = scaler;
    job.policy = policy;
    return job;
  }
  static RecordJob set_scale(ScalerRecord *scaler, float scale) {
    RecordJob job = of(Kind::kSetScale);
    job.scaler = scaler;
    job.scale = scale;
    return job;
  }
  /// A report of the scaler and of `list` or, if NULL, of the last update, to host memory: pinned, for a GPU.
  static RecordJob report(ScalerRecord *scaler, const ListRecord *list, gsc_report *out) {
    RecordJob job = of(Kind::kReport);
    job.scaler = scaler;
    job.seen = list;
    job.out = out;
    return job;
  }
  /// An update of the caller's device scalars.
  static RecordJob update_scale(const Policy &policy, float *scale, int32_t *tracker, const float *found_inf) {
    RecordJob job = of(Kind::kUpdateScale);
    job.policy = policy;
    job.scale_word = scale;
    job.tracker_word = tracker;
    job.found_inf = found_inf;
    return job;
  }

 private:
  static RecordJob of(Kind kind) {
    RecordJob job{};
    job.kind = kind;
    return job;
  }
};

/// Runs the job on the records' device. `summary` is that of the lists of a kUpdate.
GSC_HD void run_record_job(const RecordJob &job, const UpdateSummary &summary) {
  switch (job.kind) {
    case RecordJob::Kind::kConclude:
      return conclude_check(*job.list, job.rule);
    case RecordJob::Kind::kUpdate:
      return conclude_update(*job.scaler, summary);
    case RecordJob::Kind::kSetPolicy:
      return replace_policy(*job.scaler, job.policy);
    case RecordJob::Kind::kSetScale:
      return store_scale(job.scaler->state, job.scale);
    case RecordJob::Kind::kReport:
      return pack_report(*job.scaler, job.seen, *job.out);
    case RecordJob::Kind::kUpdateScale:
      return update_scale(job.policy, *job.scale_word, *job.tracker_word, *job.found_inf != 0.0F);
  }
}

}  // namespace gsc
