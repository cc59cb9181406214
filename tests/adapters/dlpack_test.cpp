// SPDX-License-Identifier: Apache-2.0
//
// The DLPack adapter, from C and from C++: dtypes, offsets, strides, devices, what is refused, and a list made of what
// it returns.
#include <gradscaler/adapters/dlpack.h>

#include "tests/support/objects.h"

extern "C" gsc_status adapters_dlpack_in_c(const DLTensor *dl, gsc_tensor *out_tensor);

namespace gsc_test {
namespace {

constexpr DLDataType kFloat32 = {kDLFloat, 32, 1};

struct Shaped {
  Shaped(void *data, std::vector<int64_t> dims, DLDataType dtype = kFloat32) : shape(std::move(dims)) {
    dl.data = data;
    dl.device = {kDLCPU, 0};
    dl.ndim = shape.size();
    dl.dtype = dtype;
    dl.shape = shape.data();
  }
  std::vector<int64_t> shape;
  DLTensor dl{};
};

TEST(Dlpack, DtypesOfFloats) {
  double data[4] = {};
  const struct {
    DLDataType from;
    int32_t to;
  } cases[] = {{{kDLFloat, 16, 1}, GSC_FP16}, {{kDLBfloat, 16, 1}, GSC_BF16}, {{kDLFloat, 32, 1}, GSC_FP32},
               {{kDLFloat, 64, 1}, GSC_FP64}, {{kDLFloat, 8, 1}, 0},          {{kDLInt, 32, 1}, 0},
               {{kDLBfloat, 32, 1}, 0},       {{kDLFloat, 32, 4}, 0}};
  for (const auto &c : cases) {
    const Shaped shaped(data, {2, 2}, c.from);
    gsc_tensor tensor = GSC_TENSOR_INIT(nullptr, -1, -1);
    EXPECT_EQ(gsc_dlpack_tensor(&shaped.dl, &tensor), c.to != 0 ? GSC_OK : GSC_ERROR_UNSUPPORTED);
    EXPECT_EQ(tensor.dtype, c.to != 0 ? c.to : -1) << "outputs are untouched on error";
  }
}

TEST(Dlpack, BecomesAList) {
  float data[7] = {0, 0, 2, 2, 2, 2, 0};
  Shaped shaped(data, {2, 1, 2});
  int64_t strides[] = {2, 77, 1};
  shaped.dl.strides = strides;
  shaped.dl.byte_offset = 8;
  const Context context = make_context();
  for (const auto &convert : {gsc_dlpack_tensor, adapters_dlpack_in_c}) {
    gsc_tensor tensor;
    ASSERT_EQ(convert(&shaped.dl, &tensor), GSC_OK);
    EXPECT_EQ(tensor.data, data + 2);
    const List list = make_list(context, {tensor});
    const Scaler scaler = make_scaler(context, 1.0f);
    ASSERT_GSC_OK(gsc_scaler_check(scaler, list, nullptr));
    EXPECT_EQ(report_of(scaler, list.get()).grad_norm, 4.0);
  }
}

TEST(Dlpack, Shapes) {
  float data[8] = {};
  gsc_tensor tensor;
  const auto status_of = [&](const Shaped &shaped) { return gsc_dlpack_tensor(&shaped.dl, &tensor); };
  ASSERT_EQ(status_of({data, {}}), GSC_OK);
  EXPECT_EQ(tensor.count, 1);
  ASSERT_EQ(status_of({nullptr, {3, 0}}), GSC_OK);
  EXPECT_EQ(tensor.count, 0);
  EXPECT_EQ(status_of({nullptr, {3}}), GSC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of({data, {2, -1}}), GSC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of({data, {int64_t{1} << 32, int64_t{1} << 31}}), GSC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(gsc_dlpack_tensor(nullptr, &tensor), GSC_ERROR_INVALID_ARGUMENT);
  Shaped transposed(data, {2, 4});
  int64_t strides[] = {1, 2};
  transposed.dl.strides = strides;
  EXPECT_EQ(status_of(transposed), GSC_ERROR_UNSUPPORTED);
}

TEST(Dlpack, Devices) {
  int32_t type = -1, index = -1;
  using Device = std::pair<int32_t, int32_t>;
  const auto becomes = [&](DLDevice device) {
    EXPECT_EQ(gsc_dlpack_device(device, &type, &index), GSC_OK);
    return Device(type, index);
  };
  EXPECT_EQ(becomes({kDLCPU, 0}), Device(GSC_DEVICE_CPU, 0));
  EXPECT_EQ(becomes({kDLCUDA, 3}), Device(GSC_DEVICE_CUDA, 3));
  EXPECT_EQ(becomes({kDLCUDAHost, 1}), Device(GSC_DEVICE_CPU, 0));
  EXPECT_EQ(becomes({static_cast<DLDeviceType>(13), 1}).first, GSC_DEVICE_CUDA);
  EXPECT_EQ(gsc_dlpack_device({kDLVulkan, 0}, &type, &index), GSC_ERROR_UNSUPPORTED);
}

#if defined(DLPACK_MAJOR_VERSION) && DLPACK_MAJOR_VERSION >= 1
TEST(Dlpack, ReadOnlyIsRefused) {
  float data[2] = {};
  Shaped shaped(data, {2});
  DLManagedTensorVersioned managed{};
  managed.dl_tensor = shaped.dl;
  gsc_tensor tensor;
  EXPECT_EQ(gsc_dlpack_writable_tensor(&managed, &tensor), GSC_OK);
  managed.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
  EXPECT_EQ(gsc_dlpack_writable_tensor(&managed, &tensor), GSC_ERROR_UNSUPPORTED);
  managed.flags = 2;  // DLPACK_FLAG_BITMASK_IS_COPIED
  EXPECT_EQ(gsc_dlpack_writable_tensor(&managed, &tensor), GSC_ERROR_UNSUPPORTED);
}
#endif

}  // namespace
}  // namespace gsc_test
