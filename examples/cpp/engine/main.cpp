// SPDX-License-Identifier: Apache-2.0
//
// A host shaped like a game engine: it loads the library at run time, lends it its job system and memory with a hard
// limit, trains a model within a part of each frame, and reloads the library between frames. Prints a table of frame
// times. --check also compares with a plain run and fails unless every bit is the same and no frame has allocated.
#include <gradscaler/loader.h>

#include <chrono>
#include <cstring>
#include <string>

#include "frame_times.h"
#include "job_system.h"
#include "memory_budget.h"
#include "scene.h"
#include "training.h"

namespace {

using engine::FrameTimes;
using engine::Training;
using Clock = std::chrono::steady_clock;

struct Arguments {
  const char *library = nullptr;
  int64_t steps = 150;
  double budget_us = 300.0;  ///< of a frame's 16.7 ms
  int reload_every = 50;     ///< frames; 0: never
  int64_t memory_kib = 16384;
  bool cuda = false;  ///< train on a GPU that reads the host's memory
  bool check = false;
};

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

long long number(int64_t n) { return n; }  // for printf

bool say(const char *sentence) {
  std::fprintf(stderr, "engine: %s\n", sentence);
  return false;
}

/// Whether the file is mapped; also where a loader would only count references.
bool is_loaded(const char *path) {
  void *handle = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (handle != nullptr) dlclose(handle);
  return handle != nullptr;
}

/// The library, and how it is opened again.
struct Plugin {
  const char *path;
  gsc_library library = {};
  bool load() {
    char message[1024];
    return gsc_library_open(&library, path, message, sizeof message) || say(message);
  }
  bool unload() {
    gsc_library_close(&library);
    return path == nullptr || !is_loaded(path) || say("the library is still mapped after dlclose");
  }
};

gsc_context_options options_for(const Arguments &arguments, engine::JobSystem &jobs) {
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  options.device_type = arguments.cuda ? GSC_DEVICE_CUDA : GSC_DEVICE_CPU;
  options.num_threads = jobs.threads();
  options.parallel_for = engine::JobSystem::hook;
  options.parallel_for_user = &jobs;
  return options;
}

struct Totals {
  int64_t frames = 0, reloads = 0, counted = 0, requests = 0;
  double first_loss = 0.0;
};

/// The main loop. Allocations are counted in all frames but those of the first whole step and of the one after a reload,
/// in which the library makes room for its plans.
bool run_frames(const Arguments &arguments, Plugin &plugin, engine::JobSystem &jobs, engine::MemoryBudget &memory,
                Training &training, Totals &totals) {
  engine::Scene scene;
  const size_t room = 100000;
  FrameTimes scene_times("scene", room), training_times("training", room), frame_times("frame", room);
  FrameTimes reload_times("save, unload, load, restore", room);
  int64_t settled = 1;  // steps; the library has made its plans once one whole step is done
  while (training.steps() < arguments.steps) {
    if (totals.first_loss == 0.0) totals.first_loss = training.loss();
    const int64_t requests = memory.requests(), before = training.steps();
    const Clock::time_point start = Clock::now();
    scene.update(jobs);
    const double scene_ms = ms_since(start);
    if (!training.run_within(arguments.budget_us)) return say(training.error());
    const double frame_ms = ms_since(start);
    if (before > settled) {
      ++totals.counted;
      totals.requests += memory.requests() - requests;
    }
    scene_times.add(scene_ms);
    training_times.add(frame_ms - scene_ms);
    frame_times.add(frame_ms);

    if (++totals.frames % std::max(arguments.reload_every, 1) != 0 || arguments.reload_every <= 0) continue;
    const Clock::time_point reload = Clock::now();
    if (!training.save()) return say(training.error());
    training.close();
    if (!plugin.unload() || !plugin.load()) return false;
    if (!training.open(plugin.library.api, options_for(arguments, jobs))) return say(training.error());
    reload_times.add(ms_since(reload));
    ++totals.reloads;
    settled = training.steps() + 1;
  }
  FrameTimes::print_head();
  for (FrameTimes *times : {&scene_times, &training_times, &frame_times, &reload_times}) times->print();
  return true;
}

/// Limits that are too small, by a little and by much: a sentence, the library's or the host's, and nothing left.
bool limit_is_an_error(Plugin &plugin, const gsc_context_options &options, int64_t enough) {
  for (const int64_t tenths : {9, 8, 7, 6, 5}) {
    engine::MemoryBudget small(enough * tenths / 10);
    {
      Training training(small.hooks());
      if (training.open(plugin.library.api, options)) return say("the limit of memory was not noticed");
      std::printf("with %lld KiB: %s\n", number(small.limit() / 1024), training.error());
      if (std::strstr(training.error(), "memory") == nullptr) return say("the limit of memory was not named");
    }
    if (small.used() != 0) return say("a failure left memory allocated");
  }
  return true;
}

/// The same steps in one go, on one thread, with memory of no limit and without reloads, must have the same bits.
bool equals_plain_run(const gsc_api *api, const Training &split) {
  engine::MemoryBudget memory(INT64_MAX);
  Training plain(memory.hooks(), INT64_MAX);  // whole steps
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  options.num_threads = 1;
  if (!plain.open(api, options)) return say(plain.error());
  while (plain.steps() < split.steps()) {
    if (!plain.run_slice()) return say(plain.error());
  }
  if (plain.scale() != split.scale()) return say("the scale differs from that of a plain run");
  if (plain.skipped() != split.skipped()) return say("the skipped steps differ from those of a plain run");
  if (plain.loss() != split.loss()) return say("the loss differs from that of a plain run");
  const auto same = [](const gsc_tensor &a, const gsc_tensor &b, size_t size) {
    return std::memcmp(a.data, b.data, static_cast<size_t>(a.count) * size) == 0;
  };
  for (int layer = 0; layer < engine::kLayers; ++layer) {
    if (!same(plain.model().master(layer), split.model().master(layer), sizeof(float)) ||
        !same(plain.model().halfs(layer), split.model().halfs(layer), sizeof(uint16_t))) {
      return say("the weights differ from those of a plain run");
    }
  }
  return true;
}

bool check(const Arguments &arguments, Plugin &plugin, engine::JobSystem &jobs, const engine::MemoryBudget &memory,
           const Training &training, const Totals &totals) {
  if (totals.counted == 0 && arguments.reload_every != 1) return say("no frame was looked at for allocations");
  if (totals.requests != 0) return say("a frame has allocated");
  if (!arguments.cuda && jobs.parallel_fors() <= totals.frames) return say("the library has not used the job system");
  if (arguments.reload_every > 0 && totals.reloads == 0) return say("there was no reload");
  if (training.skipped() == 0) return say("no step was skipped, although the scale began too high");
  if (!(training.loss() < 0.25 * totals.first_loss)) return say("the loss has not fallen");
  return limit_is_an_error(plugin, options_for(arguments, jobs), memory.peak()) &&
         equals_plain_run(plugin.library.api, training);
}

bool run(const Arguments &arguments) {
  engine::JobSystem jobs(3);
  engine::MemoryBudget memory(arguments.memory_kib * 1024);
  Plugin plugin{arguments.library};
  Totals totals;
  Training training(memory.hooks());
  if (!plugin.load()) return false;
  bool ok = training.open(plugin.library.api, options_for(arguments, jobs)) || say(training.error());
  ok = ok && run_frames(arguments, plugin, jobs, memory, training, totals);
  if (ok) {
    std::printf("\n%lld steps in %lld frames of %.1f ms for training, %lld skipped, %lld reloads; scale %g\n",
                number(training.steps()), number(totals.frames), arguments.budget_us / 1000.0,
                number(training.skipped()), number(totals.reloads), double{training.scale()});
    std::printf("loss %.4f to %.4f; the longest slice of an optimizer's step took %.3f ms\n", totals.first_loss,
                training.loss(), training.worst_step_ms());
    std::printf("memory: %lld of %lld KiB at most; %lld requests in %lld settled frames\n",
                number(memory.peak() / 1024), number(memory.limit() / 1024), number(totals.requests),
                number(totals.counted));
    std::printf("jobs: %d threads, %lld parallel regions\n", jobs.threads(), number(jobs.parallel_fors()));
    if (arguments.check) ok = check(arguments, plugin, jobs, memory, training, totals);
  }
  training.close();
  return plugin.unload() && ok;
}

}  // namespace

int main(int argc, char **argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    if (name == "--check" || name == "--cuda") {
      (name == "--check" ? arguments.check : arguments.cuda) = true;
      continue;
    }
    const char *value = argv[++i];  // NULL after the last
    if (value == nullptr) name.clear();
    if (name == "--library") {
      arguments.library = value;
    } else if (name == "--steps") {
      arguments.steps = std::atoll(value);
    } else if (name == "--budget-us") {
      arguments.budget_us = std::atof(value);
    } else if (name == "--reload-every") {
      arguments.reload_every = std::atoi(value);
    } else if (name == "--memory-kib") {
      arguments.memory_kib = std::atoll(value);
    } else {
      std::fprintf(stderr,
                   "usage: engine [--library FILE] [--steps N] [--budget-us N] [--reload-every FRAMES] "
                   "[--memory-kib N] [--cuda] [--check]\n");
      return 2;
    }
  }
  return run(arguments) ? 0 : 1;
}
