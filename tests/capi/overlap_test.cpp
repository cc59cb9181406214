// SPDX-License-Identifier: Apache-2.0
//
// Tensors that share memory, by their elements or by their scales, in every call that takes tensors or new addresses: it
// is refused and writes nothing. A function of the header without a row fails. The kind of defect: a call that knows of
// the elements of a tensor and not of its scales, or of some of its tensors and not of all.
#include <fstream>
#include <regex>
#include <set>

#include "core/rules/state_conversion.h"
#include "tests/support/objects.h"

namespace gsc_test {
namespace {

constexpr int64_t kCount = 64;  ///< elements of a tensor, in two groups

/// Memory in which a test places tensors by their offsets.
struct Arena {
  Context context = make_context();
  alignas(64) unsigned char bytes[8192] = {};
  std::vector<List> lists;
  std::vector<Optimizer> optimizers;

  Arena() {
    for (size_t i = 0; i < sizeof bytes; ++i) bytes[i] = static_cast<unsigned char>(i % 251);
  }
  gsc_tensor plain(int64_t at, int32_t dtype = GSC_FP32) { return GSC_TENSOR_INIT(bytes + at, kCount, dtype); }
  /// In codes of 8 bits, with two scales.
  gsc_tensor coded(int64_t at, int64_t scales, int32_t dtype = GSC_FP8_E4M3) {
    gsc_tensor t = plain(at, dtype);
    t.scale = bytes + scales;
    t.scale_dtype = gsc::scale_dtype_of(dtype);
    t.scale_block_rows = 1;
    t.scale_block_columns = 32;
    return t;
  }
  gsc_tensor_list *list(const std::vector<gsc_tensor> &tensors) {
    lists.push_back(make_list(context, tensors));
    return lists.back();
  }
};

struct Row {
  const char *function;
  const char *what;
  std::function<gsc_status(Arena &)> call;
};

gsc_status create(Arena &a, const std::vector<gsc_tensor> &tensors) { return status_of_list(a.context, tensors); }

/// An AdamW of one bf16 tensor with gradients at 512.
gsc_status create_optimizer(Arena &a, const gsc_tensor &param, const gsc_tensor &first, const gsc_tensor &second) {
  const gsc_optimizer_options options = optimizer_options(GSC_ADAMW);
  return status_of_optimizer(a.context, &options, a.list({param}), a.list({a.plain(512, GSC_BF16)}),
                             {a.list({first}), a.list({second})});
}

/// Moves a list of one with parameters (0) at 0, gradients (1) at 512, and state (2, 3) at 1024 and 1536.
gsc_status move(Arena &a, int which, int64_t to) {
  gsc_tensor_list *lists[4] = {a.list({a.plain(0, GSC_BF16)}), a.list({a.plain(512, GSC_BF16)}),
                               a.list({a.coded(1024, 2048)}), a.list({a.coded(1536, 2064, GSC_UINT8_LOG)})};
  const gsc_optimizer_options options = optimizer_options(GSC_ADAMW);
  gsc_optimizer *optimizer = nullptr;
  EXPECT_GSC_OK(gsc_optimizer_create(a.context, &options, lists[0], lists[1], nullptr, lists + 2, 2, &optimizer));
  a.optimizers.emplace_back(optimizer);
  return set_pointers(lists[which], {a.bytes + to});
}

gsc_status set_present(Arena &a, const std::vector<gsc_tensor> &tensors, const std::vector<int64_t> &to) {
  std::vector<void *> data;
  for (const int64_t at : to) data.push_back(a.bytes + at);
  return gsc_tensor_list_set_present(a.list(tensors), nullptr, data.data(), std::ssize(data), nullptr);
}

gsc_status convert(Arena &a, const gsc_tensor &src, const gsc_tensor &dst, const gsc_tensor *weights = nullptr) {
  return gsc_ops_convert_state(a.context, &src, weights, &dst, 1, nullptr);
}
gsc_status convert(Arena &a, const gsc_tensor &src, const gsc_tensor &dst, const gsc_tensor &weights) {
  return convert(a, src, dst, &weights);
}

gsc_status cast(Arena &a, const gsc_tensor &src, const gsc_tensor &dst) {
  return gsc_ops_cast(a.context, &src, &dst, 1, nullptr);
}

/// Operations on elements alone take no scales.
template <typename F>
gsc_status with_scales(Arena &a, const F &call) {
  const gsc_tensor t = a.coded(0, 10), plain = a.plain(1024);
  return call(&t, &plain);
}
float word = 1.0F, other_word = 0.0F;
double norm = 0.0;

#define ROW(function, what, ...)                                         \
  {                                                                      \
#function, what, [](Arena & a) -> gsc_status { return __VA_ARGS__; } \
  }
const Row kRows[] = {
    ROW(gsc_tensor_list_create, "elements on elements", create(a, {a.plain(0), a.plain(252)})),
    ROW(gsc_tensor_list_create, "scales in its elements", create(a, {a.coded(0, 63)})),
    ROW(gsc_tensor_list_create, "scales around its begin", create(a, {a.coded(64, 63)})),
    ROW(gsc_tensor_list_create, "scales in others' elements", create(a, {a.plain(0), a.coded(1024, 100)})),
    ROW(gsc_tensor_list_create, "scales on others' scales", create(a, {a.coded(0, 2048), a.coded(64, 2049)})),
    ROW(gsc_tensor_list_set_pointers, "onto its own scales", set_pointers(a.list({a.coded(0, 1000)}), {a.bytes + 980})),
    ROW(gsc_tensor_list_set_pointers, "onto others' scales",
        set_pointers(a.list({a.coded(0, 1000), a.coded(64, 1010)}), {a.bytes + 947, a.bytes + 64})),
    ROW(gsc_tensor_list_set_pointers, "state onto its own scales", move(a, 2, 2000)),
    ROW(gsc_tensor_list_set_pointers, "state onto another slot's scales", move(a, 2, 2064)),
    ROW(gsc_tensor_list_set_pointers, "state onto gradients", move(a, 3, 512)),
    ROW(gsc_tensor_list_set_pointers, "parameters onto scales", move(a, 0, 2040)),
    ROW(gsc_tensor_list_set_pointers, "gradients onto scales", move(a, 1, 2064)),
    ROW(gsc_tensor_list_set_present, "onto its own scales", set_present(a, {a.coded(0, 1000)}, {1001})),
    ROW(gsc_tensor_list_set_present, "onto others' scales",
        set_present(a, {a.coded(0, 1000), a.coded(64, 1010)}, {0, 1000})),
    ROW(gsc_tensor_list_set_present, "onto elements", set_present(a, {a.plain(0), a.plain(1024)}, {0, 128})),
    ROW(gsc_optimizer_create, "scales in parameters",
        create_optimizer(a, a.plain(0, GSC_BF16), a.coded(1024, 126), a.coded(1536, 2064, GSC_UINT8_LOG))),
    ROW(gsc_optimizer_create, "scales in gradients",
        create_optimizer(a, a.plain(0, GSC_BF16), a.coded(1024, 2048), a.coded(1536, 512, GSC_UINT8_LOG))),
    ROW(gsc_optimizer_create, "scales in another slot",
        create_optimizer(a, a.plain(0, GSC_BF16), a.coded(1024, 1599), a.coded(1536, 2064, GSC_UINT8_LOG))),
    ROW(gsc_optimizer_create, "scales on scales",
        create_optimizer(a, a.plain(0, GSC_BF16), a.coded(1024, 2049), a.coded(1536, 2048, GSC_UINT8_LOG))),
    ROW(gsc_ops_convert_state, "dst's scales in dst", convert(a, a.plain(0), a.coded(1024, 1030))),
    ROW(gsc_ops_convert_state, "src's scales in src", convert(a, a.coded(1024, 1030), a.plain(0))),
    ROW(gsc_ops_convert_state, "dst's scales in src", convert(a, a.plain(0), a.coded(1024, 255))),
    ROW(gsc_ops_convert_state, "dst on src's scales", convert(a, a.coded(1024, 255), a.plain(0))),
    ROW(gsc_ops_convert_state, "scales on scales", convert(a, a.coded(0, 2048), a.coded(1024, 2049))),
    ROW(gsc_ops_convert_state, "dst in src", convert(a, a.plain(0), a.coded(128, 2048))),
    ROW(gsc_ops_convert_state, "weights that are dst",
        convert(a, a.plain(0), a.plain(1024, GSC_INT16), a.plain(1024, GSC_BF16))),
    ROW(gsc_ops_convert_state, "weights in masters that are written",
        convert(a, a.plain(1024, GSC_INT16), a.plain(0), a.plain(254, GSC_BF16))),
    ROW(gsc_ops_convert_state, "weights that nobody reads, on dst's scales",
        convert(a, a.plain(0), a.coded(1024, 2048), a.plain(1922, GSC_BF16))),
    ROW(gsc_ops_cast, "elements", cast(a, a.plain(0), a.plain(4))),
    ROW(gsc_ops_cast, "scales",
        with_scales(a, [&](auto *x, auto *y) { return gsc_ops_cast(a.context, x, y, 1, nullptr); })),
    ROW(gsc_ops_scale, "scales",
        with_scales(a, [&](auto *x, auto *y) { return gsc_ops_scale(a.context, x, y, 1, &word, nullptr); })),
    ROW(gsc_ops_axpby, "scales",
        with_scales(a, [&](auto *x, auto *y) { return gsc_ops_axpby(a.context, 1.0, x, 1.0, y, 1, nullptr); })),
    ROW(gsc_ops_norm, "scales",
        with_scales(
            a, [&](auto *x, auto *) { return gsc_ops_norm(a.context, x, 1, GSC_NORM_L2, &norm, nullptr, nullptr); })),
    ROW(gsc_ops_unscale_check, "scales",
        with_scales(
            a, [&](auto *x, auto *) { return gsc_ops_unscale_check(a.context, x, 1, &other_word, &word, nullptr); })),
    ROW(gsc_scaler_scale, "scales",
        with_scales(
            a, [&](auto *x, auto *y) { return gsc_scaler_scale(make_scaler(a.context, 2.0F), x, y, 1, nullptr); })),
};
#undef ROW

TEST(Overlap, IsRefusedByEveryCallThatTakesTensors) {
  for (const Row &row : kRows) {
    SCOPED_TRACE(text(row.function, ": ", row.what));
    Arena arena;
    const Arena before;
    const gsc_status status = row.call(arena);
    EXPECT_INVALID(status, "");
    EXPECT_EQ(std::memcmp(arena.bytes, before.bytes, sizeof arena.bytes), 0) << "nothing is written";
  }
}

TEST(Overlap, NeighboursAreFine) {
  Arena a;
  EXPECT_GSC_OK(create(a, {a.coded(0, 64), a.coded(66, 130), a.plain(132)}));
  EXPECT_GSC_OK(set_pointers(a.list({a.coded(0, 1000)}), {a.bytes + 1002}));
  EXPECT_GSC_OK(set_pointers(a.list({a.coded(0, 1000)}), {a.bytes + 936}));
  EXPECT_GSC_OK(create_optimizer(a, a.plain(0, GSC_BF16), a.coded(1024, 128), a.coded(1088, 130, GSC_UINT8_LOG)));
  EXPECT_GSC_OK(convert(a, a.plain(0), a.coded(256, 320)));
  EXPECT_GSC_OK(convert(a, a.coded(256, 320), a.plain(0)));
  EXPECT_GSC_OK(convert(a, a.plain(0), a.plain(256, GSC_INT16), a.plain(384, GSC_BF16)));
}

TEST(Overlap, IsNamed) {
  Arena a;
  EXPECT_INVALID(create(a, {a.plain(1024), a.coded(0, 63)}), "tensors[1] overlaps its own scales");
  EXPECT_INVALID(create(a, {a.plain(0), a.coded(1024, 100)}), "tensors[1] has scales that overlap tensors[0]");
  EXPECT_INVALID(create(a, {a.coded(1024, 100), a.plain(64)}), "tensors[0] has scales that overlap tensors[1]");
  EXPECT_INVALID(set_pointers(a.list({a.coded(0, 1000)}), {a.bytes + 980}), "data[0] overlaps its own scales");
  EXPECT_INVALID(move(a, 0, 2040), "data[0] overlaps the scales of state[0][0]");
  const gsc_tensor pair[2] = {a.plain(0), a.plain(256)}, codes[2] = {a.coded(1024, 2048), a.coded(1088, 1090)};
  EXPECT_INVALID(gsc_ops_convert_state(a.context, pair, nullptr, codes, 2, nullptr), "dst[1] overlaps its own scales");
}

TEST(Overlap, EveryFunctionThatTakesTensorsHasARow) {
  std::set<std::string> known;
  for (const Row &row : kRows) known.insert(row.function);
  std::ifstream file(GSC_HEADER);
  ASSERT_TRUE(file.is_open());
  const std::string header((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::regex declaration(R"(GSC_API gsc_status (gsc_\w+)\(([^;]*)\);)");
  int found = 0;
  for (std::sregex_iterator it(header.begin(), header.end(), declaration), end; it != end; ++it) {
    const std::string arguments = (*it)[2];
    if (!std::regex_search(arguments, std::regex(R"(const gsc_tensor \*|void \*const \*data|\*const \*state)")))
      continue;
    ++found;
    EXPECT_TRUE(known.contains((*it)[1])) << (*it)[1] << " has no row";
  }
  EXPECT_EQ(found, std::ssize(known));
}

}  // namespace
}  // namespace gsc_test
