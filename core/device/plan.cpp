// SPDX-License-Identifier: Apache-2.0
// Cutting tensors into chunks, and chunks into tasks of about equal cost.
#include "core/device/plan.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <optional>

#include "core/base/error.h"

namespace gsc {
namespace {

// Chunks: at most 2^16 elements (offender_key), at least 2^14 so that the plan stays under 0.1 % of the data, and about
// 4096 of them in between so that thousands of processors share the work evenly.
constexpr int32_t kMinChunkShift = 14;
constexpr int32_t kMaxChunkShift = 16;
constexpr int64_t kWantedChunks = 4096;

// Elements of a tensor and of a list: beyond any device's memory, and few enough that the plan for an uninitialized
// count takes 400 MB and not all memory.
constexpr int64_t kMaxElements = int64_t{1} << 40;

// Tensors of a list. An uninitialized count is caught here, not by reading that many tensors.
constexpr int64_t kMaxTensors = int64_t{1} << 24;

// What a chunk costs besides its elements, in elements: function calls, table look-ups, a cold cache line per array.
constexpr int64_t kChunkOverhead = 128;

// Below this a task is not worth waking a thread for.
constexpr int64_t kMinTaskCost = 32768;

/// The first field that is not 0 of those that are for later versions; NULL: none.
std::optional<Literal> later_field(const gsc_tensor &t) {
  if (t.scale_dtype != 0) return Literal("scale_dtype");
  if (t.scale != nullptr) return Literal("scale");
  if (t.scale_block_rows != 0) return Literal("scale_block_rows");
  if (t.scale_block_columns != 0) return Literal("scale_block_columns");
  if (t.columns != 0) return Literal("columns");
  if (t.reserved[0] != 0) return Literal("reserved[0]");
  if (t.reserved[1] != 0) return Literal("reserved[1]");
  return std::nullopt;
}

}  // namespace

DtypeChoices::DtypeChoices(bool (*accepts)(int32_t dtype)) {
  const int32_t dtypes[] = {
#define GSC_CODE(D) D::kCode,
      GSC_FOR_EACH_DTYPE(GSC_CODE)
#undef GSC_CODE
  };
  int left = 0;
  for (const int32_t dtype : dtypes) left += accepts(dtype) ? 1 : 0;
  char *out = text_;
  const auto append = [&](const char *word, bool upper) {
    for (; *word != '\0' && out + 1 < text_ + sizeof text_; ++word) {
      *out++ = upper ? static_cast<char>(std::toupper(*word)) : *word;
    }
  };
  for (const int32_t dtype : dtypes) {
    if (!accepts(dtype)) continue;
    append("GSC_", true);
    append(dtype_name(dtype), true);
    --left;
    append(left > 1 ? ", " : (left == 1 ? " or " : ""), false);
  }
}

namespace {

/// Bytes of the UTF-8 character at `s`, a zero-terminated string; 0 if it is not valid, or would break the line or the
/// quotes of a message: control characters, line and paragraph separators, quote and backslash.
std::size_t printable_length(const char *s) {
  const auto byte = [s](int i) { return static_cast<unsigned char>(s[i]); };
  if (byte(0) < 0x80) return byte(0) >= 0x20 && byte(0) != 0x7f && byte(0) != '"' && byte(0) != '\\' ? 1 : 0;
  const int length = byte(0) >= 0xc2 && byte(0) < 0xe0   ? 2
                     : (byte(0) >> 4) == 0xe             ? 3
                     : byte(0) >= 0xf0 && byte(0) < 0xf5 ? 4
                                                         : 0;
  uint32_t code = byte(0) & (0x7fU >> length);
  for (int i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80U) return 0;  // also at the end of the string
    code = (code << 6) | (byte(i) & 0x3fU);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  const bool separates = code < 0xa0 || code == 0x2028 || code == 0x2029 || (code >= 0x202a && code <= 0x202e) ||
                         (code >= 0x2066 && code <= 0x2069);  // the last two: writing direction
  return overlong || surrogate || code > 0x10ffff || separates ? 0 : static_cast<std::size_t>(length);
}

}  // namespace

NameSuffix::NameSuffix(const Names *names, int64_t index) {
  if (names == nullptr || names->empty()) return;
  const String &name = (*names)[static_cast<std::size_t>(index)];
  if (name.empty()) return;
  char *out = text_ + std::snprintf(text_, sizeof text_, " (\"");
  const char *const limit = out + kLongestName;
  std::size_t at = 0;
  while (at < name.size()) {
    // A printable character as it is, anything else byte by byte as an escape.
    const std::size_t length = printable_length(name.c_str() + at);
    if (out + (length > 0 ? length : 4) > limit) break;
    if (length > 0) {
      std::memcpy(out, name.c_str() + at, length);
      out += length;
      at += length;
    } else {
      out += std::snprintf(out, 5, "\\x%02x", static_cast<unsigned char>(name[at++]));
    }
  }
  std::snprintf(out, static_cast<std::size_t>(text_ + sizeof text_ - out), "%s\")", at < name.size() ? "..." : "");
}

void validate_tensor_count(int64_t count) {
  if (count >= 0 && count <= kMaxTensors) return;
  fail(GSC_ERROR_INVALID_ARGUMENT, "count", "is %lld; it must be a number of tensors from 0 to 2^24",
       static_cast<long long>(count));
}

void validate_tensors(const gsc_tensor *tensors, int64_t count, const Argument &what, const Names *names) {
  validate_tensor_count(count);
  if (count > 0 && tensors == nullptr) fail(GSC_ERROR_INVALID_ARGUMENT, what, "is NULL");
  int64_t total = 0;
  for (int64_t i = 0; i < count; ++i) {
    const gsc_tensor &t = tensors[i];
    const int64_t size = dtype_bytes(t.dtype);
    if (size == 0) {
      fail(GSC_ERROR_INVALID_ARGUMENT, what.tensor(i).field("dtype"), "is %d; it must be %s%s", t.dtype,
           DtypeChoices().c_str(), NameSuffix(names, i).c_str());
    }
    if (const auto field = later_field(t)) {
      fail(GSC_ERROR_INVALID_ARGUMENT, what.tensor(i).field(*field), "is not 0; this version does not support it%s",
           NameSuffix(names, i).c_str());
    }
    if (t.count < 0 || t.count > kMaxElements) {
      fail(GSC_ERROR_INVALID_ARGUMENT, what.tensor(i).field("count"), "is %lld; it must be in 0..2^40%s",
           static_cast<long long>(t.count), NameSuffix(names, i).c_str());
    }
    total += t.count;
    if (total > kMaxElements) {
      fail(GSC_ERROR_INVALID_ARGUMENT, what.tensor(i),
           "and the tensors before it have more than 2^40 elements together%s", NameSuffix(names, i).c_str());
    }
    if (t.count == 0) continue;
    if (t.data == nullptr) {
      fail(GSC_ERROR_INVALID_ARGUMENT, what.tensor(i).field("data"), "is NULL but its count is %lld%s",
           static_cast<long long>(t.count), NameSuffix(names, i).c_str());
    }
    if (reinterpret_cast<uintptr_t>(t.data) % static_cast<uintptr_t>(size) != 0) {
      fail(GSC_ERROR_INVALID_ARGUMENT, what.tensor(i).field("data"),
           "is %p, which is not aligned to its dtype %s (%lld bytes)%s", t.data, dtype_name(t.dtype),
           static_cast<long long>(size), NameSuffix(names, i).c_str());
    }
  }
}

void Plan::build(const gsc_tensor *tensors, int64_t count, int32_t pieces) {
  tensors_.resize(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < tensors_.size(); ++i) tensors_[i] = {tensors[i].data, tensors[i].count, tensors[i].dtype};
  total_elements_ = 0;
  total_bytes_ = 0;
  for (const Tensor &t : tensors_) {
    total_elements_ += t.count;
    total_bytes_ += t.count * dtype_bytes(t.dtype);
  }
  chunk_shift_ = kMinChunkShift;
  while (chunk_shift_ < kMaxChunkShift && (total_elements_ >> chunk_shift_) > kWantedChunks) ++chunk_shift_;

  first_chunk_.resize(static_cast<std::size_t>(count) + 1);
  int64_t chunks = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    first_chunk_[i] = chunks;
    chunks += (tensors_[i].count + chunk_elements() - 1) >> chunk_shift_;
  }
  first_chunk_.back() = chunks;
  find_runs();

  const int64_t cost = total_elements_ + chunks * kChunkOverhead;
  const int64_t tasks = std::clamp<int64_t>(cost / kMinTaskCost, 1, std::max<int32_t>(pieces, 1));
  splits_.assign(static_cast<std::size_t>(tasks) + 1, chunks);
  splits_[0] = 0;
  int64_t done = 0;
  std::size_t next = 1;
  for_chunks(0, chunks, [&](int64_t, int64_t, int64_t elements, int64_t chunk) {
    done += elements + kChunkOverhead;
    while (next < static_cast<std::size_t>(tasks) && done * tasks >= cost * static_cast<int64_t>(next)) {
      splits_[next++] = chunk + 1;
    }
  });
}

void Plan::rebind(void *const *data) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) tensors_[i].data = data[i];
  find_runs();
}

void Plan::find_runs() {
  run_end_.resize(tensors_.size());
  const Tensor *next = nullptr;  // the first after tensor i that is not empty
  auto end = static_cast<int64_t>(tensors_.size());
  for (auto i = static_cast<int64_t>(tensors_.size()) - 1; i >= 0; --i) {
    const Tensor &t = tensor(i);
    if (t.count > 0) {
      const char *after = static_cast<const char *>(t.data) + t.count * dtype_bytes(t.dtype);
      if (next != nullptr && (next->dtype != t.dtype || next->data != after)) end = i + 1;
      next = &t;
    }
    run_end_[static_cast<std::size_t>(i)] = end;
  }
}

int64_t Plan::tensor_of(int64_t chunk) const {
  return std::upper_bound(first_chunk_.begin(), first_chunk_.end(), chunk) - first_chunk_.begin() - 1;
}

}  // namespace gsc
