// SPDX-License-Identifier: Apache-2.0
//
// Bad input to tensor lists: every way in which a tensor can be wrong, at the first, a middle and the last index, with
// the message naming it; the calls on a finished list; and the rebinding of pointers, which must be all or nothing.
#include "tests/support/objects.h"

namespace gsc_test {
namespace {

class BadInputList : public ::testing::Test {
 protected:
  static constexpr int64_t kCount = 5;

  BadInputList() : context_(make_context()), buffers_(make_buffers(GSC_FP32, std::vector<int64_t>(kCount, 16))) {
    tensors_ = tensors_of(buffers_);
  }

  /// Spoils tensor i by `spoil` for a few i and expects the refusal to name it.
  template <typename Spoil>
  void expect_refused_at_each_index(Spoil &&spoil, const char *field = "") {
    for (const int64_t i : {int64_t{0}, int64_t{2}, kCount - 1}) {
      std::vector<gsc_tensor> tensors = tensors_;
      spoil(tensors[i]);
      EXPECT_INVALID(status_of_list(context_, tensors), text("tensors[", i, "]", field).c_str());
    }
  }

  Context context_;
  std::vector<Buffer> buffers_;
  std::vector<gsc_tensor> tensors_;
};

TEST_F(BadInputList, CreateArguments) {
  gsc_tensor_list *list = nullptr;
  EXPECT_INVALID(gsc_tensor_list_create(nullptr, tensors_.data(), kCount, nullptr, &list), "context");
  EXPECT_INVALID(gsc_tensor_list_create(context_, nullptr, kCount, nullptr, &list), "tensors");
  const char *const names[] = {"first"};
  for (const int64_t count : {int64_t{1}, INT64_MAX}) {
    EXPECT_INVALID(gsc_tensor_list_create(context_, nullptr, count, names, &list), "tensors is NULL");
  }
  EXPECT_INVALID(gsc_tensor_list_create(context_, tensors_.data(), -1, nullptr, &list), "count");
  EXPECT_INVALID(gsc_tensor_list_create(context_, tensors_.data(), INT64_MIN, nullptr, &list), "count");
  EXPECT_INVALID(gsc_tensor_list_create(context_, tensors_.data(), kCount, nullptr, nullptr), "out_list");
  EXPECT_EQ(list, nullptr);
}

TEST_F(BadInputList, FieldsOfATensor) {
  float scale = 1.0F;
  expect_refused_at_each_index([](gsc_tensor &t) { t.data = nullptr; });
  for (const int64_t count : {int64_t{-1}, INT64_MIN, INT64_MAX, (int64_t{1} << 40) + 1}) {
    expect_refused_at_each_index([count](gsc_tensor &t) { t.count = count; });
  }
  for (const int32_t dtype :
       {0, -1, int{GSC_FP8_E5M2}, int{GSC_FP8_E8M0}, int{GSC_INT8_SOFTSIGN}, int{GSC_UINT8_SQRT}, 14, 1000}) {
    expect_refused_at_each_index([dtype](gsc_tensor &t) { t.dtype = dtype; });
  }
  expect_refused_at_each_index([](gsc_tensor &t) { t = {}; });
  tensors_[0].dtype = 99;
  EXPECT_INVALID(status_of_list(context_, tensors_),
                 "it must be GSC_FP16, GSC_BF16, GSC_FP32, GSC_FP64, GSC_FP8_E4M3, GSC_UINT8_LOG, GSC_UFP16_E6M10, "
                 "GSC_INT8 or GSC_INT16");
  tensors_[0].dtype = GSC_FP32;
  // For later versions.
  expect_refused_at_each_index([](gsc_tensor &t) { t.scale_dtype = GSC_FP32; }, ".scale_dtype");
  expect_refused_at_each_index([&](gsc_tensor &t) { t.scale = &scale; }, ".scale ");
  expect_refused_at_each_index([](gsc_tensor &t) { t.scale_block_rows = 1; }, ".scale_block_rows");
  expect_refused_at_each_index([](gsc_tensor &t) { t.scale_block_columns = 32; }, ".scale_block_columns");
  expect_refused_at_each_index([](gsc_tensor &t) { t.columns = 1; }, ".columns");
  expect_refused_at_each_index([](gsc_tensor &t) { t.reserved[0] = 1; }, ".reserved[0]");
  expect_refused_at_each_index([](gsc_tensor &t) { t.reserved[1] = -1; }, ".reserved[1]");
}

TEST_F(BadInputList, Misaligned) {
  for (const auto &[shift, dtype] :
       {std::pair(1, GSC_FP32), {2, GSC_FP32}, {3, GSC_FP32}, {4, GSC_FP64}, {1, GSC_BF16}}) {
    expect_refused_at_each_index([shift = shift, dtype = dtype](gsc_tensor &t) {
      t.data = static_cast<unsigned char *>(t.data) + shift;
      t.count = 4;
      t.dtype = dtype;
    });
  }
}

TEST_F(BadInputList, Overlap) {
  // The same buffer twice; one element in common; one inside the other.
  const std::pair<int64_t, int64_t> kRanges[] = {{0, 16}, {15, 8}, {4, 1}};
  for (const auto &[first, count] : kRanges) {
    tensors_[3].data = static_cast<float *>(tensors_[1].data) + first;
    tensors_[3].count = count;
    EXPECT_INVALID(status_of_list(context_, tensors_), "tensors[1]", "tensors[3]", "overlap");
  }
}

/// Two bytes are enough, where a list is made, where its addresses change, and between the lists of an optimizer.
TEST_F(BadInputList, OverlapByOne16BitElement) {
  Buffer memory(GSC_FP16, 12);
  uint16_t *const data = memory.as<uint16_t>();
  const auto four_at = [&](int64_t begin) -> gsc_tensor { return GSC_TENSOR_INIT(data + begin, 4, GSC_FP16); };
  for (const bool meets : {false, true}) {
    const int64_t begin = meets ? 3 : 4;
    const gsc_status status = meets ? GSC_ERROR_INVALID_ARGUMENT : GSC_OK;
    const std::vector<gsc_tensor> pair = {four_at(0), four_at(begin)}, reversed = {four_at(begin), four_at(0)};
    for (const std::vector<gsc_tensor> &tensors : {pair, reversed}) {
      EXPECT_EQ(status_of_list(context_, tensors), status);
    }
    const List two = make_list(context_, {four_at(0), four_at(8)});
    EXPECT_EQ(set_pointers(two, {data, data + begin}), status);
    // The list that moves comes to lie before the other, or behind it.
    Buffer elsewhere(GSC_FP16, 4);
    for (const int64_t moved : {int64_t{0}, 2 * begin}) {
      const List params = make_list(context_, elsewhere), grads = make_list(context_, {four_at(begin)});
      const Optimizer optimizer = make_optimizer(context_, optimizer_options(GSC_SGD), params, grads);
      EXPECT_EQ(set_pointers(params, {data + moved}), status) << moved;
    }
    const gsc_tensor from = four_at(0), to = four_at(begin);
    EXPECT_EQ(gsc_ops_cast(context_, &from, &to, 1, nullptr), status);
    EXPECT_EQ(gsc_ops_cast(context_, &to, &from, 1, nullptr), status);
  }
}

TEST_F(BadInputList, NeighboursDoNotOverlap) {
  float *const data = buffers_[0].as<float>();
  const std::vector<gsc_tensor> tensors = {GSC_TENSOR_INIT(data + 8, 8, GSC_FP32), GSC_TENSOR_INIT(data, 8, GSC_FP32),
                                           GSC_TENSOR_INIT(data + 4, 0, GSC_FP32)};
  EXPECT_NE(make_list(context_, tensors), nullptr) << "neighbours and empty tensors inside others are fine";
}

TEST_F(BadInputList, Getters) {
  const List list = make_list(context_, buffers_);
  int64_t count = -7;
  gsc_tensor tensor = GSC_TENSOR_INIT(nullptr, -7, -7);
  const char *name = "unchanged";
  EXPECT_INVALID(gsc_tensor_list_get_count(nullptr, &count), "list");
  EXPECT_INVALID(gsc_tensor_list_get_count(list, nullptr), "out_count");
  EXPECT_INVALID(gsc_tensor_list_get_tensor(nullptr, 0, &tensor), "list");
  EXPECT_INVALID(gsc_tensor_list_get_tensor(list, 0, nullptr), "out_tensor");
  EXPECT_INVALID(gsc_tensor_list_get_name(list, 0, nullptr), "out_name");
  for (const int64_t index : {int64_t{-1}, kCount, INT64_MAX}) {
    EXPECT_INVALID(gsc_tensor_list_get_tensor(list, index, &tensor), ("index is " + std::to_string(index)).c_str(),
                   ("the list has " + std::to_string(kCount)).c_str());
    EXPECT_INVALID(gsc_tensor_list_get_name(list, index, &name), "index");
  }
  EXPECT_EQ(count, -7);
  EXPECT_EQ(tensor.count, -7);
  EXPECT_STREQ(name, "unchanged");
}

/// A message is read as UTF-8, so a long name must not be cut inside a character.
TEST_F(BadInputList, MessagesCutLongNamesBetweenCharacters) {
  for (const int ascii : {0, 1, 2}) {
    std::string name(ascii, 'x');
    for (int i = 0; i < 70; ++i) name += "\xe2\x82\xac";  // the Euro sign
    const char *names[kCount] = {nullptr, name.c_str()};
    std::vector<gsc_tensor> tensors = tensors_;
    tensors[1].dtype = 0;
    EXPECT_INVALID(status_of_list(context_, tensors, names), "tensors[1]", "\xe2\x82\xac...\")");
    std::string rest = gsc_error_get_message();
    for (size_t at; (at = rest.find("\xe2\x82\xac")) != std::string::npos;) rest.erase(at, 3);
    for (const char c : rest) EXPECT_GE(c, 0) << rest;
  }
}

TEST_F(BadInputList, MessagesHaveNamesOf112CharactersWhole) {
  const std::string name(112, 'x');
  const char *names[kCount] = {nullptr, name.c_str()};
  tensors_[1].scale_block_rows = 1;
  for (const int32_t dtype : {0, int{GSC_FP32}}) {
    tensors_[1].dtype = dtype;
    EXPECT_INVALID(status_of_list(context_, tensors_, names),
                   dtype == 0 ? "tensors[1].dtype" : "tensors[1].scale_block_rows", ("(\"" + name + "\")").c_str());
  }
}

TEST_F(BadInputList, SetPointersIsAllOrNothing) {
  const List list = make_list(context_, buffers_);
  std::vector<Buffer> other = make_buffers(GSC_FP32, std::vector<int64_t>(kCount, 16));
  std::vector<void *> data;
  for (Buffer &buffer : other) data.push_back(buffer.data());
  const auto expect_refused = [&](void *const *pointers, int64_t count, const char *word) {
    EXPECT_INVALID(gsc_tensor_list_set_pointers(list, pointers, count, nullptr), word);
    for (int64_t i = 0; i < kCount; ++i) EXPECT_EQ(tensor_at(list, i).data, tensors_[i].data);
  };
  EXPECT_INVALID(gsc_tensor_list_set_pointers(nullptr, data.data(), kCount, nullptr), "list");
  expect_refused(nullptr, kCount, "data");
  expect_refused(data.data(), kCount - 1, "count");
  expect_refused(data.data(), -1, "count");
  std::vector<void *> bad = data;
  bad[4] = nullptr;
  expect_refused(bad.data(), kCount, "data[4] is NULL");
  EXPECT_STREQ(last_error().field, "") << "an array of addresses has no fields";
  for (void *const third : {static_cast<void *>(static_cast<unsigned char *>(data[3]) + 2), data[1]}) {
    bad = data;
    bad[3] = third;
    expect_refused(bad.data(), kCount, "[3]");
  }
  ASSERT_GSC_OK(set_pointers(list, data));
  EXPECT_EQ(tensor_at(list, 4).data, data[4]);
}

TEST_F(BadInputList, Diagnose) {
  const List list = make_list(context_, buffers_);
  std::vector<gsc_tensor_diagnosis> diagnosis(kCount);
  diagnosis[0].count = -7;
  EXPECT_INVALID(gsc_tensor_list_diagnose_sync(nullptr, diagnosis.data(), nullptr, kCount, nullptr), "list");
  EXPECT_INVALID(gsc_tensor_list_diagnose_sync(list, nullptr, nullptr, kCount, nullptr), "out_diagnosis");
  for (const int64_t count : {kCount - 1, kCount + 1, int64_t{-1}, int64_t{0}}) {
    EXPECT_INVALID(gsc_tensor_list_diagnose_sync(list, diagnosis.data(), nullptr, count, nullptr), "count");
  }
  EXPECT_EQ(diagnosis[0].count, -7);
}

TEST(BadInputRecommend, Arguments) {
  std::vector<int64_t> histogram(GSC_EXPONENT_BINS, 0);
  histogram[100] = 1;
  float scale = -7.0f;
  double flushed = -7.0;
  const auto expect_refused = [&](float current, int32_t dtype, const char *word, int64_t bins = GSC_EXPONENT_BINS) {
    EXPECT_INVALID(gsc_histogram_recommend_scale(histogram.data(), bins, current, dtype, &scale, &flushed), word);
  };
  EXPECT_INVALID(gsc_histogram_recommend_scale(nullptr, GSC_EXPONENT_BINS, 1.0f, GSC_FP16, &scale, &flushed),
                 "histogram");
  expect_refused(1.0f, GSC_FP16, "bins", GSC_EXPONENT_BINS - 1);
  for (const double current : {0.0, -1.0, kInf, kNan}) expect_refused(current, GSC_FP16, "current_scale");
  expect_refused(1.0f, 0, "dtype");
  expect_refused(1.0f, GSC_FP64, "dtype is 4; it must be GSC_FP16, GSC_BF16 or GSC_FP32");
  histogram[3] = -1;
  expect_refused(1.0f, GSC_FP16, "histogram");
  histogram[3] = 0;
  EXPECT_INVALID(gsc_histogram_recommend_scale(histogram.data(), GSC_EXPONENT_BINS, 1.0f, GSC_FP16, nullptr, &flushed),
                 "out_scale");
  EXPECT_EQ(scale, -7.0f);
  EXPECT_EQ(flushed, -7.0);
}

}  // namespace
}  // namespace gsc_test
