// SPDX-License-Identifier: Apache-2.0
// Operations on records only.
#include "core/cpu/backend.h"

namespace gsc::cpu {

void CpuBackend::record(const RecordJob &job, gsc_stream /*stream*/) {
  UpdateSummary summary = empty_summary();
  for (int64_t i = 0; i < job.list_count; ++i) add_to_summary(summary, *job.lists[i]);
  run_record_job(job, summary);
}

}  // namespace gsc::cpu
