// SPDX-License-Identifier: Apache-2.0
//
// Mixed-precision training in plain CUDA: a 64-64-10 network on the handwritten digits, with fp16 weights, activations
// and gradients. One iteration, forward pass, backward pass and the whole tail of the step, is captured in one graph and
// then only replayed: skipping, the loss scale and the step count live on the device. Usage: digits_cuda digits.csv.
// Exit status 77 where there is no CUDA device.
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <gradscaler/gradscaler.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

extern "C" {
#include "../common/random.h"
#include "../digits/dataset.h"
}

namespace {

constexpr int kInput = DIGITS_PIXELS, kHidden = 64, kClasses = DIGITS_CLASSES;
constexpr int kRows = 128, kIterations = 1500, kTrain = 1400;
constexpr int kThreads = 128;

void require(gsc_status status, const char *what) {
  if (status == GSC_OK) return;
  std::fprintf(stderr, "digits_cuda: %s: %s\n", what, gsc_error_get_message());
  std::exit(status == GSC_ERROR_UNAVAILABLE ? 77 : 1);
}
void require(cudaError_t error, const char *what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "digits_cuda: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

template <typename T>
T *device_array(int count) {
  void *memory = nullptr;
  require(cudaMalloc(&memory, sizeof(T) * static_cast<size_t>(count)), "device memory");
  require(cudaMemset(memory, 0, sizeof(T) * static_cast<size_t>(count)), "device memory");
  return static_cast<T *>(memory);
}

__device__ int global_index() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }

/// y = x w + b, with ReLU if asked to; sums in fp32, stored in fp16.
__global__ void forward(const __half *x, const __half *w, const __half *b, __half *y, int rows, int in, int out,
                        bool relu) {
  const int i = global_index();
  if (i >= rows * out) return;
  const int row = i / out, column = i % out;
  float sum = __half2float(b[column]);
  for (int k = 0; k < in; ++k) sum += __half2float(x[row * in + k]) * __half2float(w[k * out + column]);
  y[i] = __float2half_rn(relu ? fmaxf(sum, 0.0F) : sum);
}

/// Where the backward pass starts: the gradient of the mean cross-entropy, times the loss scale that is on the device.
__global__ void loss_gradient(const __half *logits, const int *labels, __half *delta, int rows, const float *scale) {
  const int row = global_index();
  if (row >= rows) return;
  float largest = -INFINITY, sum = 0.0F;
  for (int c = 0; c < kClasses; ++c) largest = fmaxf(largest, __half2float(logits[row * kClasses + c]));
  for (int c = 0; c < kClasses; ++c) sum += expf(__half2float(logits[row * kClasses + c]) - largest);
  for (int c = 0; c < kClasses; ++c) {
    const float p = expf(__half2float(logits[row * kClasses + c]) - largest) / sum;
    delta[row * kClasses + c] =
        __float2half_rn((p - (labels[row] == c ? 1.0F : 0.0F)) / static_cast<float>(rows) * *scale);
  }
}

/// Gradients of a layer's matrix and bias.
__global__ void backward_weights(const __half *x, const __half *delta, __half *dw, __half *db, int rows, int in,
                                 int out) {
  const int i = global_index();
  if (i >= (in + 1) * out) return;
  const int k = i / out, column = i % out;
  float sum = 0.0F;
  for (int row = 0; row < rows; ++row) {
    sum += (k < in ? __half2float(x[row * in + k]) : 1.0F) * __half2float(delta[row * out + column]);
  }
  (k < in ? dw[i] : db[column]) = __float2half_rn(sum);
}

/// The gradient of a layer's input, which came out of a ReLU.
__global__ void backward_input(const __half *delta, const __half *w, const __half *x, __half *dx, int rows, int in,
                               int out) {
  const int i = global_index();
  if (i >= rows * in) return;
  const int row = i / in, k = i % in;
  float sum = 0.0F;
  for (int c = 0; c < out; ++c) sum += __half2float(delta[row * out + c]) * __half2float(w[k * out + c]);
  dx[i] = __float2half_rn(__half2float(x[i]) > 0.0F ? sum : 0.0F);
}

/// Runs a kernel with a thread for each of `count` results.
template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), int count, cudaStream_t stream, Arguments... arguments) {
  kernel<<<(count + kThreads - 1) / kThreads, kThreads, 0, stream>>>(arguments...);
}

struct Network {
  // Matrix and bias of each layer: fp32 masters, the fp16 weights that are computed with, and their gradients.
  static constexpr int kTensors = 4;
  static constexpr int kCounts[kTensors] = {kInput * kHidden, kHidden, kHidden *kClasses, kClasses};
  float *masters[kTensors];
  __half *weights[kTensors], *grads[kTensors];
  __half *input, *hidden, *logits, *hidden_delta, *logits_delta;
  int *labels;

  explicit Network(int max_rows) {
    for (int t = 0; t < kTensors; ++t) {
      masters[t] = device_array<float>(kCounts[t]);
      weights[t] = device_array<__half>(kCounts[t]);
      grads[t] = device_array<__half>(kCounts[t]);
    }
    input = device_array<__half>(max_rows * kInput);
    hidden = device_array<__half>(max_rows * kHidden);
    hidden_delta = device_array<__half>(max_rows * kHidden);
    logits = device_array<__half>(max_rows * kClasses);
    logits_delta = device_array<__half>(max_rows * kClasses);
    labels = device_array<int>(max_rows);
  }

  void run_forward(int rows, cudaStream_t stream) const {
    launch(forward, rows * kHidden, stream, input, weights[0], weights[1], hidden, rows, kInput, kHidden, true);
    launch(forward, rows * kClasses, stream, hidden, weights[2], weights[3], logits, rows, kHidden, kClasses, false);
  }

  void run_backward(int rows, const float *scale, cudaStream_t stream) const {
    launch(loss_gradient, rows, stream, logits, labels, logits_delta, rows, scale);
    launch(backward_weights, (kHidden + 1) * kClasses, stream, hidden, logits_delta, grads[2], grads[3], rows, kHidden,
           kClasses);
    launch(backward_input, rows * kHidden, stream, logits_delta, weights[2], hidden, hidden_delta, rows, kHidden,
           kClasses);
    launch(backward_weights, (kInput + 1) * kHidden, stream, input, hidden_delta, grads[0], grads[1], rows, kInput,
           kHidden);
  }

  void set_batch(const float *pixels, const int *batch_labels, int rows, cudaStream_t stream) const {
    std::vector<__half> halves(static_cast<size_t>(rows) * kInput);
    for (size_t i = 0; i < halves.size(); ++i) halves[i] = __float2half_rn(pixels[i]);
    require(cudaMemcpyAsync(input, halves.data(), halves.size() * sizeof(__half), cudaMemcpyHostToDevice, stream),
            "batch");
    require(
        cudaMemcpyAsync(labels, batch_labels, sizeof(int) * static_cast<size_t>(rows), cudaMemcpyHostToDevice, stream),
        "batch");
    require(cudaStreamSynchronize(stream), "batch");
  }
};

gsc_tensor_list *make_list(gsc_context *context, void *const *data, int32_t dtype) {
  gsc_tensor tensors[Network::kTensors];
  for (int t = 0; t < Network::kTensors; ++t) tensors[t] = GSC_TENSOR_INIT(data[t], Network::kCounts[t], dtype);
  gsc_tensor_list *list = nullptr;
  require(gsc_tensor_list_create(context, tensors, Network::kTensors, nullptr, &list), "list");
  return list;
}

/// He initialisation of the masters, and the first rounding to fp16.
void initialise(const Network &network, random_source *random, gsc_context *context) {
  for (int t = 0; t < Network::kTensors; t += 2) {
    const int count = Network::kCounts[t];
    const double scale = std::sqrt(2.0 / (t == 0 ? kInput : kHidden));
    std::vector<float> values(static_cast<size_t>(count));
    for (float &value : values) value = static_cast<float>(scale * random_normal(random));
    require(cudaMemcpy(network.masters[t], values.data(), sizeof(float) * values.size(), cudaMemcpyHostToDevice),
            "weights");
    const gsc_tensor from = GSC_TENSOR_INIT(network.masters[t], count, GSC_FP32);
    const gsc_tensor to = GSC_TENSOR_INIT(network.weights[t], count, GSC_FP16);
    require(gsc_ops_cast(context, &from, &to, 1, nullptr), "weights");
  }
  require(cudaDeviceSynchronize(), "weights");
}

double accuracy(const Network &network, const dataset &test, cudaStream_t stream) {
  network.set_batch(test.pixels, test.labels, test.count, stream);
  network.run_forward(test.count, stream);
  std::vector<__half> logits(static_cast<size_t>(test.count) * kClasses);
  require(
      cudaMemcpyAsync(logits.data(), network.logits, logits.size() * sizeof(__half), cudaMemcpyDeviceToHost, stream),
      "logits");
  require(cudaStreamSynchronize(stream), "logits");
  int right = 0;
  for (int row = 0; row < test.count; ++row) {
    const __half *values = logits.data() + row * kClasses;
    int best = 0;
    for (int c = 1; c < kClasses; ++c) best = __half2float(values[c]) > __half2float(values[best]) ? c : best;
    right += best == test.labels[row] ? 1 : 0;
  }
  return static_cast<double>(right) / test.count;
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: digits_cuda digits.csv\n");
    return 2;
  }
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  options.device_type = GSC_DEVICE_CUDA;
  gsc_context *context = nullptr;
  require(gsc_context_create(&options, &context), "CUDA device 0");

  dataset all, train, test;
  if (!dataset_read(&all, argv[1])) return 1;
  dataset_split(&all, kTrain, 1, &train, &test);
  random_source random = random_make(2, 0);

  const Network network(test.count > kRows ? test.count : kRows);
  gsc_tensor_list *params = make_list(context, reinterpret_cast<void *const *>(network.masters), GSC_FP32);
  gsc_tensor_list *grads = make_list(context, reinterpret_cast<void *const *>(network.grads), GSC_FP16);
  gsc_tensor_list *weights = make_list(context, reinterpret_cast<void *const *>(network.weights), GSC_FP16);
  gsc_optimizer *optimizer = nullptr;
  gsc_scaler *scaler = nullptr;
  require(gsc_optimizer_create(context, nullptr, params, grads, weights, nullptr, 0, &optimizer), "AdamW");
  gsc_scaler_options scaling = GSC_SCALER_OPTIONS_INIT;
  scaling.growth_interval = 200;
  require(gsc_scaler_create(context, &scaling, &scaler), "scaler");
  gsc_device_state state{};
  state.struct_size = sizeof state;
  require(gsc_scaler_get_device_state(scaler, nullptr, &state), "addresses");
  initialise(network, &random, context);

  // One iteration as a graph. Nothing in it waits, allocates or depends on the host.
  cudaStream_t stream = nullptr;
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t iteration = nullptr;
  require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  network.run_forward(kRows, stream);
  network.run_backward(kRows, state.scale, stream);
  require(gsc_scaler_clip_grad_norm(scaler, grads, 5.0, GSC_NORM_L2, stream), "clip");
  require(gsc_scaler_step_and_update(scaler, optimizer, stream), "step");
  require(cudaStreamEndCapture(stream, &graph), "capture");
  require(cudaGraphInstantiate(&iteration, graph, 0), "graph");

  std::vector<float> pixels(static_cast<size_t>(kRows) * kInput);
  std::vector<int> labels(kRows);
  for (int i = 0; i < kIterations; ++i) {
    dataset_batch(&train, &random, kRows, pixels.data(), labels.data());
    network.set_batch(pixels.data(), labels.data(), kRows, stream);
    require(cudaGraphLaunch(iteration, stream), "iteration");
    if (i % 300 != 299) continue;
    gsc_report report{};
    report.struct_size = sizeof report;
    require(gsc_scaler_get_report_sync(scaler, nullptr, &report, stream), "report");
    std::printf("iteration %4d  scale %8g  gradient norm %.4f  skipped %lld  accuracy %.3f\n", i + 1,
                static_cast<double>(report.scale), report.grad_norm, static_cast<long long>(report.skipped),
                accuracy(network, test, stream));
  }
  const double result = accuracy(network, test, stream);
  cudaGraphExecDestroy(iteration);
  cudaGraphDestroy(graph);
  gsc_optimizer_destroy(optimizer);
  gsc_scaler_destroy(scaler);
  for (gsc_tensor_list *list : {params, grads, weights}) gsc_tensor_list_destroy(list);
  gsc_context_destroy(context);
  dataset_free(&all);
  dataset_free(&train);
  dataset_free(&test);
  return result > 0.9 ? 0 : 1;
}
