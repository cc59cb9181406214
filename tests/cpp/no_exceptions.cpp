// SPDX-License-Identifier: Apache-2.0
//
// The C++ layer as engines build it, without exceptions and RTTI: a training, failures that reach the handler, and calls
// that go on after it. With the argument `abort`, a failure under the first handler, which prints and aborts.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <gradscaler/adapters/shared_pool.hpp>
#include <gradscaler/gradscaler.hpp>
#include <string>

static_assert(GSC_CPP_THROWS == 0);

namespace gs = gradscaler;

namespace {

int wrong = 0;
void expect(bool holds, const char *what) {
  if (holds) return;
  std::printf("does not hold: %s\n", what);
  ++wrong;
}

struct Failures {
  int count = 0;
  gsc_status status = GSC_OK;
  std::string field, message;
} failures;

void note(const gs::Error &error) {
  ++failures.count;
  failures.status = error.status();
  failures.field = error.details().field;
  failures.message = error.what();
}

/// f fails once with `status`; returns what it returns.
template <typename F>
auto failing(gsc_status status, const char *what, const F &f) {
  failures = {};
  auto result = f();
  expect(failures.count == 1 && failures.status == status, what);
  return result;
}

void trains() {
  gs::SharedPool pool(2);
  gs::ContextOptions options;
  pool.use_in(options);
  gs::Context context(options);
  std::vector<float> weights(100, 1.0f), gradients(100, 4.0f);
  gs::TensorList params(context, {gs::tensor(weights)}), grads(context, {gs::tensor(gradients)});
  gs::Optimizer adamw(context, {.lr = 0.5}, params, grads);
  gs::GradScaler scaler(context, {.init_scale = 4.0f, .growth_interval = 1});
  scaler.clip_grad_norm(grads, 100.0);
  scaler.step(adamw);
  scaler.update();
  expect(weights[99] < 1.0f, "a step moves the weights");
  expect(scaler.get_scale_sync() == 8.0f && scaler.get_history_sync().size() == 1, "the scale grows");
  expect(adamw.get_steps_sync().applied == 1, "the step counts");
  expect(failures.count == 0, "nothing fails");
}

void goes_on() {
  const gs::Context context;
  std::vector<float> numbers(4, 1.0f);
  std::vector<uint16_t> halfs(4);
  gs::TensorList list(context, {gs::tensor(numbers)});
  gs::GradScaler scaler(context);

  const auto none = failing(GSC_ERROR_INVALID_ARGUMENT, "a bad option",
                            [&] { return gs::GradScaler(context, {.init_scale = -1.0f}); });
  expect(!none && failures.field == "init_scale", "an object that could not be made is false");
  expect(failures.message.find("gsc_scaler_create: options.init_scale is -1") == 0, "the message is the library's");
  expect(failing(GSC_ERROR_INVALID_ARGUMENT, "no scaler", [&] { return none.get_scale_sync(); }) == 0.0f,
         "a number that could not be read is 0");
  expect(!failing(GSC_ERROR_UNAVAILABLE, "no such device", [] { return gs::Context({.device_index = 7}); }),
         "no context");
  failing(GSC_ERROR_BAD_STATE, "nothing to update", [&] { return scaler.update(), 0; });
  expect(
      failing(GSC_ERROR_INVALID_ARGUMENT, "a half of fp32", [&] { return gs::tensor(halfs, gs::DType::fp32); }).dtype ==
          0,
      "a tensor that is refused");
  const gs::Tensor two[] = {gs::tensor(numbers), gs::tensor(numbers)};
  failing(GSC_ERROR_INVALID_ARGUMENT, "one for two", [&] { return scaler.scale(two, two[0]), 0; });
  const char *const names[] = {"a", "b"};
  expect(
      !failing(GSC_ERROR_INVALID_ARGUMENT, "two names for one", [&] { return gs::TensorList(context, two[0], names); }),
      "no list");
  expect(scaler.get_report_sync().updates == 0 && failures.count == 1, "what is in order still works");
}

}  // namespace

int main(int count, char **arguments) {
  if (count > 1 && std::strcmp(arguments[1], "abort") == 0) {
    std::signal(SIGABRT, [](int) {
      std::fputs("aborted\n", stderr);
      std::_Exit(0);
    });
    const gs::Context context;
    const gs::GradScaler scaler(context, {.init_scale = -1.0f});
    return 1;
  }
  expect(gs::set_failure_handler(&note) != nullptr, "there is a handler before");
  trains();
  goes_on();
  expect(gs::set_failure_handler(nullptr) == &note, "the handler comes back");
  return wrong == 0 ? 0 : 1;
}
