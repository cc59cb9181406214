// SPDX-License-Identifier: Apache-2.0
//
// A native extension for Godot 3: a node that trains the policy of ../engine within a budget of each frame, on the
// thread of the scene. The library is loaded by loader.h, and gets Godot's allocator. It shows scale and loss, and at the
// end the frame times and whether the weights equal those of a plain run. If they do not, the engine's exit code is not 0.
#include <gradscaler/loader.h>

#include <chrono>
#include <cstdarg>
#include <memory>

#include "frame_times.h"
#include "gdnative.h"
#include "plain_run.h"
#include "training.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kSteps = 100, kShowEvery = 20;
constexpr double kBudgetUs = 2000.0;

godot::Api g_godot;
const char *g_mismatch = nullptr;
gsc_library g_library;

__attribute__((format(printf, 1, 2))) void say(const char *format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  g_godot.print(line);
}

/// godot_alloc as the library wants it: it takes an int and promises the alignment of malloc only. What it returned
/// stands in front of the block.
struct GodotMemory {
  int64_t requests = 0;

  static void *allocate(void *user, int64_t bytes, int64_t alignment) {
    ++static_cast<GodotMemory *>(user)->requests;
    const int64_t all = bytes + alignment + static_cast<int64_t>(sizeof(void *));
    void *start = all <= INT32_MAX ? g_godot.alloc(static_cast<int>(all)) : nullptr;
    if (start == nullptr) return nullptr;
    const uintptr_t first = reinterpret_cast<uintptr_t>(start) + sizeof(void *);
    const uintptr_t aligned =
        (first + static_cast<uintptr_t>(alignment) - 1) & ~(static_cast<uintptr_t>(alignment) - 1);
    reinterpret_cast<void **>(aligned)[-1] = start;
    return reinterpret_cast<void *>(aligned);
  }
  static void release(void *, void *memory, int64_t, int64_t) { g_godot.free(static_cast<void **>(memory)[-1]); }
  engine::HostMemory hooks() { return {allocate, release, this}; }
};

class Trainer {
 public:
  explicit Trainer(godot::Object *node) : node_(node) {}

  void ready() {
    char message[1024];
    if (g_mismatch != nullptr) return fail(g_mismatch);
    if (!gsc_library_open(&g_library, nullptr, message, sizeof message)) return fail(message);
    gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
    options.num_threads = 1;
    if (!training_.open(g_library.api, options)) return fail(training_.error());
    say("gradscaler %s in Godot", g_library.api->library_get_version());
    open_ = true;
  }

  void process() {
    if (!open_) return;
    const int64_t before = training_.steps(), requests = memory_.requests;
    const Clock::time_point start = Clock::now();
    if (!training_.run_within(kBudgetUs)) return fail(training_.error());
    times_.add(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    // The library makes room for its plans in the first step.
    if (before > 0) requests_in_steps_ += memory_.requests - requests;
    if (before == 0 && training_.steps() > 0) first_loss_ = training_.loss();
    if (training_.steps() / kShowEvery != before / kShowEvery) {
      say("step %3d  scale %9g  loss %.4f", static_cast<int>(training_.steps()), double{training_.scale()},
          training_.loss());
    }
    if (training_.steps() >= kSteps) finish();
  }

  void exit_tree() {
    training_.close();
    open_ = false;
  }

 private:
  void finish() {
    char line[128];
    engine::FrameTimes::head(line, sizeof line);
    g_godot.print(line);
    times_.row(line, sizeof line);
    g_godot.print(line);
    const char *difference = engine::difference_from_plain_run(g_library.api, training_);
    if (difference != nullptr) return fail(difference);
    if (requests_in_steps_ != 0) return fail("a step has allocated");
    if (!(training_.loss() < 0.5 * first_loss_)) return fail("the loss has not fallen");
    say("done: %d steps, %d skipped, no allocation in a step, the bits of a plain run",
        static_cast<int>(training_.steps()), static_cast<int>(training_.skipped()));
    quit(0);
  }

  void fail(const char *sentence) {
    g_godot.print_error(sentence);
    quit(1);
  }

  void quit(int64_t exit_code) {
    open_ = false;
    godot::Object *tree = nullptr;
    g_godot.call(g_godot.method("Node", "get_tree"), node_, nullptr, &tree);
    const void *arguments[] = {&exit_code};
    g_godot.call(g_godot.method("SceneTree", "quit"), tree, arguments, nullptr);
  }

  godot::Object *node_;
  GodotMemory memory_;
  engine::Training training_{memory_.hooks()};
  engine::FrameTimes times_{"training in _process", 100000};
  bool open_ = false;
  int64_t requests_in_steps_ = 0;
  double first_loss_ = 0.0;
};

template <void (Trainer::*kMethod)()>
godot::Variant call(godot::Object *, void *, void *trainer, int, godot::Variant **) {
  (static_cast<Trainer *>(trainer)->*kMethod)();
  return g_godot.nil();
}

}  // namespace

extern "C" {
#define EXPORT __attribute__((visibility("default")))

EXPORT void godot_gdnative_init(godot::InitOptions *options) {
  g_mismatch = g_godot.check(*options);
  if (g_mismatch != nullptr) options->report_loading_error(options->library, g_mismatch);
}

EXPORT void godot_gdnative_terminate(void *) { gsc_library_close(&g_library); }

EXPORT void godot_nativescript_init(void *handle) {
  if (g_mismatch != nullptr) return;
  const godot::NativeScriptApi &script = g_godot.native_script();
  script.register_class(
      handle, "Trainer", "Node",
      {[](godot::Object *node, void *) -> void * { return new Trainer(node); }, nullptr, nullptr},
      {[](godot::Object *, void *, void *trainer) { delete static_cast<Trainer *>(trainer); }, nullptr, nullptr});
  script.register_method(handle, "Trainer", "_ready", {0}, {call<&Trainer::ready>, nullptr, nullptr});
  script.register_method(handle, "Trainer", "_process", {0}, {call<&Trainer::process>, nullptr, nullptr});
  script.register_method(handle, "Trainer", "_exit_tree", {0}, {call<&Trainer::exit_tree>, nullptr, nullptr});
}
}
