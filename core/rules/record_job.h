// SPDX-License-Identifier: Apache-2.0
// Work on records only, as one job with a kind. Compiled for host and device.
#pragma once

#include "core/rules/report.h"
#include "core/rules/write_struct.h"

namespace gsc {

struct RecordJob {
  enum class Kind : int32_t {
    kMultiply,     ///< the multiplier of `list` from `inv_scale`, NULL for 1, and `factor`
    kConclude,     ///< a check whose totals are in `list`, by `rule` and the rules of `scaler`, which may be NULL
    kClip,         ///< the clip factor of `list`, whose check has been concluded, by `rule`
    kUpdate,       ///< of `scaler`, after an iteration over `lists`
    kSetPolicy,    ///< of `scaler` to `policy`
    kSetScale,     ///< of `scaler` to `scale`
    kReport,       ///< of `scaler` and of `seen` or, if NULL, of the last update, to `out`
    kUpdateScale,  ///< of the caller's device scalars, by `policy`
  };

  Kind kind;
  ListRecord *list = nullptr;
  const ListRecord *seen = nullptr;
  ClipRule rule = {};
  ScalerRecord *scaler = nullptr;
  const ListRecord *const *lists = nullptr;  ///< host memory
  int64_t list_count = 0;
  Policy policy = {};
  float scale = 0.0F;
  gsc_report *out = nullptr;  ///< host memory: pinned, for CUDA; on Vulkan a device address of a whole gsc_report
  uint32_t out_size = 0;      ///< its struct_size, which is not read again; not for Vulkan
  float *scale_word = nullptr;
  int32_t *tracker_word = nullptr;
  const float *found_inf = nullptr;
  const float *inv_scale = nullptr;
  const float *factor = nullptr;
};

/// Runs the job on the records' device. `summary` is that of the lists of a kUpdate.
GSC_HD void run_record_job(const RecordJob &job, const UpdateSummary &summary) {
  switch (job.kind) {
    case RecordJob::Kind::kMultiply:
      return set_multiplier(*job.list, job.inv_scale != nullptr ? *job.inv_scale : 1.0F, *job.factor);
    case RecordJob::Kind::kConclude:
      return conclude_check(*job.list, job.rule, job.scaler);
    case RecordJob::Kind::kClip:
      return set_clip(*job.list, job.rule);
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

/// The same, and a report has the size that its reader was compiled with.
GSC_HD void run_sized_record_job(const RecordJob &job, const UpdateSummary &summary) {
  if (job.kind != RecordJob::Kind::kReport) return run_record_job(job, summary);
  gsc_report report;
  pack_report(*job.scaler, job.seen, report);
  write_struct(job.out, job.out_size, report);
}

}  // namespace gsc
